"""The command of a shell text that trains: program, arguments, ranks, and the keys that follow from what stands before it."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os.path import isfile  # Path.is_file raises an error if a name is too long
from pathlib import Path
from typing import Literal

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.job_text import PASTE, REFERENCE, JobText, StartedCommand
from nnlo_lib.compat.importers.launch_settings import LAUNCHERS, NOTES, RankLayout
from nnlo_lib.compat.importers.options import parse_count
from nnlo_lib.core.errors import UserError

Kind = Literal["training", "search", "session"]
RANKS_OF = {
    "search": "the ranks of the whole search, one of them the coordinator",
    "session": "the number of ranks follows from other options",
}
SHELLS = {"bash", "sh", "zsh", "ksh", "dash", "eval", "source"}
# Variables that NNLO reads, which change its training.
NNLO_VARIABLES = {
    "NNLO_SHORT_BATCHES": "set train.steps_per_epoch",
    "DATA_CACHE": "set data.stage_to",
    "DATA_COPY_COMMAND": "set data.stage_to, which copies without an external command",
    "GANONEPASS": "nnlo trains critic and generator in turn",
    "GANREVERSED": "nnlo trains the critic first",
    "GANCHECKPOINT": "set model.weights",
    "GANCHECKPOINTLOC": "set model.weights",
}


@dataclass(frozen=True)
class CommandLine:
    """Program of a command, its arguments and the options of its launcher.

    Attributes:
        path: program as it was written.
        remarks: parts of the text that affect only the machine.
        untranslated: parts of the text without an equivalent, with the reason.
        written: options of launchers and jobs, and parts without an equivalent, as they were written.
    """

    program: str
    words: tuple[str, ...]
    text: str
    path: str = ""
    layout: RankLayout = field(default_factory=RankLayout)
    environment: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    untranslated: tuple[tuple[str, str], ...] = ()
    written: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    container: str = ""

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return self.layout.ranks[0]

    @property
    def threads(self) -> int:
        """OMP_NUM_THREADS, or the cores of a rank that the launcher gives, or 1."""
        written = self.environment.get("OMP_NUM_THREADS", "")
        return parse_count(written, "OMP_NUM_THREADS") if written else max(1, self.layout.threads[0])


def parse_command(words: Sequence[str], kind_of: Callable[[str], str]) -> CommandLine:
    """Parse a command given as one string in shell syntax or as its words.

    Args:
        words: one string, such as the text of a job script, or the words of one command.
        kind_of: returns training, preparation or an empty string for a program.

    Raises:
        UserError: if the text starts no program that trains, and not exactly one other program.
    """
    script = JobText(words[0] if len(words) == 1 else shlex.join(words), kind_of)
    chosen, *others = script.commands or [_only_command(script, kind_of)]
    if chosen.launcher and ":" in chosen.words:
        raise UserError(
            f"{chosen.launcher}: several programs are separated by `:`; import one of them with the number of all ranks"
        )
    layout = RankLayout(chosen.launcher, script.job.merged(chosen.job), chosen.step)
    settings = layout.settings
    untranslated = [*settings.untranslated, *script.untranslated]
    untranslated += [
        (f"line {each.line}: {each.text}", "an experiment is one training; import it separately")
        for each in others
    ]
    unset = [name for word in chosen.words[1:] for name in REFERENCE.findall(word)]
    untranslated += [(name, "the text does not set this variable; write its value") for name in unset]
    if layout.has_unknown_ranks:
        source = settings.source("unknown_hosts") or chosen.launcher
        untranslated.append((source, "the number of ranks is not in the command; set parallel.ranks"))
    return CommandLine(
        program=chosen.name,
        words=tuple(chosen.words[1:]),
        text=chosen.text,
        path=chosen.words[0],
        layout=layout,
        environment={**chosen.environment, **settings.environment},
        remarks=(*settings.remarks, *chosen.remarks),
        untranslated=tuple(untranslated),
        written=tuple(dict.fromkeys([*settings.written, *(source for source, _ in untranslated)])),
        lines=tuple(script.lines),
        container=chosen.container,
    )


def _only_command(script: JobText, kind_of: Callable[[str], str]) -> StartedCommand:
    """Return the command of a text in which none trains, for the sentence about its program."""
    launched = [each for each in script.others if LAUNCHERS.keys() & {Path(word).name for word in each.words}]
    found = launched or script.others
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(each.name for each in found))
        raise UserError(
            f"expected one command, got {len(found)}{f' ({names})' if names else ''}; pass a command or script "
            "that trains: nnlo import '...'"
        )
    found[0].strip(kind_of)
    if not found[0].words:
        raise UserError(f"the command has no program; {PASTE}")
    if found[0].name in SHELLS or isfile(found[0].words[0]) or " " in found[0].words[0]:
        raise UserError(
            f"{found[0].text}: the commands of a script that another one starts are not read; {PASTE}"
        )
    return found[0]


def set_launch_keys(draft: ExperimentDraft, command: CommandLine, kind: Kind = "training") -> None:
    """Set ranks, GPUs, threads and the limits of the job; record the other parts of the command.

    Args:
        kind: training; search, whose job contains many trainings; session, whose ranks follow from other options.
    """
    ranks, source = command.layout.ranks
    if kind == "training":
        processes = f"{ranks} process{'es' * (ranks > 1)}"
        draft.set("parallel.ranks", ranks, f"{processes} ({source})" if source else processes)
    elif source:
        draft.remarks.append(f"{source}: {RANKS_OF[kind]}")
    _set_gpus(draft, command, ranks)
    if command.threads > 1 or command.environment.get("OMP_NUM_THREADS"):
        source = (
            "OMP_NUM_THREADS" if command.environment.get("OMP_NUM_THREADS") else command.layout.threads[1]
        )
        draft.set("parallel.threads_per_rank", max(1, command.threads), source)
    if command.container:
        draft.set("resources.container", command.container, command.container)
    if kind == "search":
        meanings = ("nodes", "hosts", "runtime", "memory_per_node", "memory_per_cpu", "partition", "account")
        draft.remarks += [
            f"{text}: request it for the job in which `nnlo search` runs"
            for text in map(command.layout.settings.source, meanings)
            if text
        ]
    else:
        _set_job(draft, command)
    _record_environment(draft, command)
    draft.given_words += command.written
    draft.remarks += command.remarks
    draft.lines += command.lines
    for written, reason in command.untranslated:
        draft.add_untranslatable(written, reason)


def _set_gpus(draft: ExperimentDraft, command: CommandLine, ranks: int) -> None:
    gpus, source = command.layout.gpus
    if command.environment.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        draft.override("parallel.gpus_per_rank", 0, "CUDA_VISIBLE_DEVICES without a GPU")
        return
    if gpus < 0:
        return
    draft.override("parallel.gpus_per_rank", int(gpus > 0), source)
    if 0 < gpus < ranks:
        draft.set("parallel.ranks_per_gpu", -(-ranks // gpus), f"{source}: {gpus} GPUs for {ranks} ranks")
    if gpus > ranks:
        draft.remarks.append(f"{source}: {gpus} GPUs for {ranks} ranks; in nnlo, a rank uses one GPU")


def _set_job(draft: ExperimentDraft, command: CommandLine) -> None:
    settings = command.layout.settings
    if (nodes := command.layout.nodes) > 0:
        meanings = ("nodes", "hosts") if {"nodes", "hosts"} & set(settings.numbers) else ("ranks_per_node",)
        draft.set("resources.nodes", nodes, f"{settings.source(*meanings)}; the scheduler chooses the hosts")
    for key, value in (("runtime", settings.numbers.get("runtime")), *settings.texts.items()):
        if key in ("runtime", "partition", "account") and value:
            draft.set(f"resources.{key}", value, settings.source(key))
    memory, source = command.layout.memory_mb
    if memory:
        draft.set("resources.mem_mb", memory, source)


def _record_environment(draft: ExperimentDraft, command: CommandLine) -> None:
    handled = {"OMP_NUM_THREADS"} | (
        {"CUDA_VISIBLE_DEVICES"} if command.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1") else set()
    )
    for name, value in command.environment.items():
        written = f"{name}={value}"
        if name in NNLO_VARIABLES:
            draft.given_words.append(written)
            draft.add_untranslatable(written, f"nnlo does not read it; {NNLO_VARIABLES[name]}")
        elif name not in handled:
            draft.remarks.append(f"{written}: {NOTES['environment']}")
