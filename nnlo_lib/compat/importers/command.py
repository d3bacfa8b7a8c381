"""The command of a shell text that trains: program, arguments, ranks, and the keys that follow from what stands before it."""

import shlex
from collections.abc import Callable, Sequence
from os.path import isfile  # Path.is_file raises an error if a name is too long
from pathlib import Path
from typing import Literal

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.job_text import PASTE, REFERENCE, JobText, StartedCommand
from nnlo_lib.compat.importers.launch_settings import LAUNCHERS, NOTES, LaunchSettings, parse_count
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


def parse_command(words: Sequence[str], kind_of: Callable[[str], str]) -> StartedCommand:
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
    one_training = "an experiment is one training; import it separately"
    unset = [name for word in chosen.options for name in REFERENCE.findall(word)]
    chosen.job = script.job.merged(chosen.job)
    settings = chosen.settings
    chosen.environment |= settings.environment
    chosen.differences = [*settings.differences, *chosen.differences, *script.lines]
    chosen.lost = [
        *settings.lost,
        *script.lost,
        *((f"line {each.line}: {each.text}", one_training) for each in others),
        *((name, "the text does not set this variable; write its value") for name in unset),
    ]
    # Without a number, these launchers start as many ranks as the site or the file of hosts says.
    unknown = settings.source("unknown_hosts") or (chosen.launcher in ("jsrun", "ibrun") and chosen.launcher)
    if unknown and chosen.ranks == (1, ""):
        chosen.lost.append((unknown, "the number of ranks is not in the command; set parallel.ranks"))
    return chosen


def _only_command(script: JobText, kind_of: Callable[[str], str]) -> StartedCommand:
    """Return the command of a text in which none trains, for the sentence about its program."""
    launched = [each for each in script.others if LAUNCHERS.keys() & {Path(word).name for word in each.words}]
    found = launched or script.others
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(each.program for each in found))
        raise UserError(
            f"expected one command, got {len(found)}{f' ({names})' if names else ''}; pass a command or script "
            "that trains: nnlo import '...'"
        )
    found[0].strip(kind_of)
    if not found[0].words:
        raise UserError(f"the command has no program; {PASTE}")
    if found[0].program in SHELLS or isfile(found[0].words[0]) or " " in found[0].words[0]:
        raise UserError(
            f"{found[0].text}: the commands of a script that another one starts are not read; {PASTE}"
        )
    return found[0]


def set_launch_keys(draft: ExperimentDraft, command: StartedCommand, kind: Kind = "training") -> None:
    """Set ranks, GPUs, threads and the limits of the job; record the other parts of the command.

    Args:
        kind: training; search, whose job contains many trainings; session, whose ranks follow from other options.
    """
    settings, (ranks, source) = command.settings, command.ranks
    if kind == "training":
        processes = f"{ranks} process{'es' * (ranks > 1)}"
        draft.set("parallel.ranks", ranks, f"{processes} ({source})" if source else processes)
    elif source:
        draft.note(f"{source}: {RANKS_OF[kind]}")
    _set_gpus(draft, command, ranks)
    threads, source = settings.get("threads"), settings.source("threads")
    if "threads_per_set" in settings.values:
        threads = max(1, settings.get("threads_per_set") // settings.get("ranks_per_set", 1))
        source = settings.source("threads_per_set", "ranks_per_set")
    cores = max(1, threads)  # of a rank, of which it may use fewer
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
        _set_job(draft, settings, ranks * cores)
    for name, value in command.environment.items():
        if name in NNLO_VARIABLES:
            draft.given.append(f"{name}={value}")
            draft.lose(f"{name}={value}", f"nnlo does not read it; {NNLO_VARIABLES[name]}")
        elif name != "OMP_NUM_THREADS" and (name != "CUDA_VISIBLE_DEVICES" or value not in NO_GPU):
            draft.note(f"{name}={value}: {NOTES['environment']}")
    draft.given += dict.fromkeys([*settings.written, *(source for source, _ in command.lost)])
    draft.note(*command.differences)
    for source, reason in command.lost:
        draft.lose(source, reason)


def _set_gpus(draft: ExperimentDraft, command: StartedCommand, ranks: int) -> None:
    settings = command.settings
    counts = {
        "gpus_per_rank": ranks,
        "gpus_per_set": settings.resource_sets or 1,
        "gpus": 1,
        "gpus_per_node": settings.nodes or 1,
    }
    if command.environment.get("CUDA_VISIBLE_DEVICES", "0") in NO_GPU:
        draft.override("parallel.gpus_per_rank", 0, "CUDA_VISIBLE_DEVICES without a GPU")
        return
    if not (given := [meaning for meaning in counts if meaning in settings.values]):
        return
    gpus = settings.get(given[0]) * counts[given[0]]
    source = settings.source(given[0], *(["nodes"] if given[0] == "gpus_per_node" else []))
    draft.override("parallel.gpus_per_rank", int(gpus > 0), source)
    if 0 < gpus < ranks:
        draft.set("parallel.ranks_per_gpu", -(-ranks // gpus), f"{source}: {gpus} GPUs for {ranks} ranks")
    if gpus > ranks:
        draft.note(f"{source}: {gpus} GPUs for {ranks} ranks; in nnlo, a rank uses one GPU")


def _set_job(draft: ExperimentDraft, settings: LaunchSettings, cores: int) -> None:
    """Set what the job requests; `cores` is the number of cores of all ranks."""
    if settings.nodes:
        source = settings.source("nodes", "hosts") or settings.source("ranks_per_node")
        draft.set("resources.nodes", settings.nodes, f"{source}; the scheduler chooses the hosts")
    for key in ("runtime", "partition", "account"):
        if value := settings.get(key):
            draft.set(f"resources.{key}", value, settings.source(key))
    per_node = settings.get("memory_per_node") * (settings.nodes or 1)
    if memory := per_node or settings.get("memory_per_cpu") * cores:
        source = (
            settings.source("memory_per_node", "nodes") if per_node else settings.source("memory_per_cpu")
        )
        draft.set("resources.mem_mb", memory, source)
