"""The command of a shell text that trains: program, arguments, ranks, and the keys that follow from what stands before it."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import isfile  # Path.is_file raises an error if a name is too long
from pathlib import Path
from typing import Literal

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.job_text import PASTE, REFERENCE, JobText, StartedCommand
from nnlo_lib.compat.importers.launch_settings import LAUNCHERS, NOTES, RankLayout, parse_count
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
NO_GPU = ("", "-1")  # values of CUDA_VISIBLE_DEVICES


@dataclass(frozen=True)
class CommandLine:
    """Program of a command, its arguments and the options of its launcher.

    Attributes:
        path: program as it was written.
        differences: parts of the text that affect only the machine, and lines that are not read.
        lost: parts of the text without an equivalent, with the reason.
        written: options of launchers and jobs as they were written.
    """

    program: str
    words: tuple[str, ...]
    text: str
    path: str
    layout: RankLayout
    environment: dict[str, str]
    container: str
    differences: tuple[str, ...]
    lost: tuple[tuple[str, str], ...]
    written: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return self.layout.ranks[0]


def parse_command(words: Sequence[str], kind_of: Callable[[str], str]) -> CommandLine:
    """Parse a command given as one string in shell syntax, such as the text of a job script, or as its words.

    `kind_of` returns training, preparation or an empty string for a program. Raises UserError if the text starts no program
    that trains, and not exactly one other program.
    """
    script = JobText(words[0] if len(words) == 1 else shlex.join(words), kind_of)
    chosen, *others = script.commands or [_only_command(script, kind_of)]
    if chosen.launcher and ":" in chosen.words:
        raise UserError(
            f"{chosen.launcher}: several programs are separated by `:`; import one of them with the number of all ranks"
        )
    layout = RankLayout(chosen.launcher, script.job.merged(chosen.job), chosen.step)
    settings = layout.settings
    lost = [*settings.lost, *script.lost]
    one_training = "an experiment is one training; import it separately"
    lost += [(f"line {each.line}: {each.text}", one_training) for each in others]
    unset = [name for word in chosen.words[1:] for name in REFERENCE.findall(word)]
    lost += [(name, "the text does not set this variable; write its value") for name in unset]
    if layout.has_unknown_ranks:
        source = settings.source("unknown_hosts") or chosen.launcher
        lost.append((source, "the number of ranks is not in the command; set parallel.ranks"))
    return CommandLine(
        program=chosen.name,
        words=tuple(chosen.words[1:]),
        text=chosen.text,
        path=chosen.words[0],
        layout=layout,
        environment={**chosen.environment, **settings.environment},
        container=chosen.container,
        differences=(*settings.differences, *chosen.differences, *script.lines),
        lost=tuple(lost),
        written=tuple(settings.written),
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
    layout, settings = command.layout, command.layout.settings
    ranks, source = layout.ranks
    if kind == "training":
        processes = f"{ranks} process{'es' * (ranks > 1)}"
        draft.set("parallel.ranks", ranks, f"{processes} ({source})" if source else processes)
    elif source:
        draft.note(f"{source}: {RANKS_OF[kind]}")
    _set_gpus(draft, command, ranks)
    threads, source = layout.threads
    if written := command.environment.get("OMP_NUM_THREADS", ""):
        threads, source = max(1, parse_count(written, "OMP_NUM_THREADS")), "OMP_NUM_THREADS"
    if threads > 1 or written:
        draft.set("parallel.threads_per_rank", threads, source)
    if command.container:
        draft.set("resources.container", command.container, command.container)
    if kind == "search":
        meanings = ("nodes", "hosts", "runtime", "memory_per_node", "memory_per_cpu", "partition", "account")
        texts = filter(None, map(settings.source, meanings))
        draft.note(*(f"{text}: request it for the job in which `nnlo search` runs" for text in texts))
    else:
        _set_job(draft, layout)
    for name, value in command.environment.items():
        if name in NNLO_VARIABLES:
            draft.given.append(f"{name}={value}")
            draft.lose(f"{name}={value}", f"nnlo does not read it; {NNLO_VARIABLES[name]}")
        elif name != "OMP_NUM_THREADS" and (name != "CUDA_VISIBLE_DEVICES" or value not in NO_GPU):
            draft.note(f"{name}={value}: {NOTES['environment']}")
    draft.given += dict.fromkeys([*command.written, *(source for source, _ in command.lost)])
    draft.note(*command.differences)
    for source, reason in command.lost:
        draft.lose(source, reason)


def _set_gpus(draft: ExperimentDraft, command: CommandLine, ranks: int) -> None:
    gpus, source = command.layout.gpus
    if command.environment.get("CUDA_VISIBLE_DEVICES", "0") in NO_GPU:
        draft.override("parallel.gpus_per_rank", 0, "CUDA_VISIBLE_DEVICES without a GPU")
        return
    if gpus < 0:
        return
    draft.override("parallel.gpus_per_rank", int(gpus > 0), source)
    if 0 < gpus < ranks:
        draft.set("parallel.ranks_per_gpu", -(-ranks // gpus), f"{source}: {gpus} GPUs for {ranks} ranks")
    if gpus > ranks:
        draft.note(f"{source}: {gpus} GPUs for {ranks} ranks; in nnlo, a rank uses one GPU")


def _set_job(draft: ExperimentDraft, layout: RankLayout) -> None:
    settings = layout.settings
    if layout.nodes > 0:
        meanings = ("nodes", "hosts") if {"nodes", "hosts"} & set(settings.numbers) else ("ranks_per_node",)
        source = f"{settings.source(*meanings)}; the scheduler chooses the hosts"
        draft.set("resources.nodes", layout.nodes, source)
    for key in ("runtime", "partition", "account"):
        if value := settings.numbers.get(key) or settings.texts.get(key):
            draft.set(f"resources.{key}", value, settings.source(key))
    memory, source = layout.memory_mb
    if memory:
        draft.set("resources.mem_mb", memory, source)
