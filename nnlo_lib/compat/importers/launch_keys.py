"""Keys of the experiment that follow from launchers, job headers and the environment of a command."""

from typing import Literal

from nnlo_lib.compat.importers.command_line import CommandLine
from nnlo_lib.compat.importers.draft import ExperimentDraft

Kind = Literal["training", "search", "session"]
RANKS_OF = {
    "search": "the ranks of the whole search, one of them the coordinator",
    "session": "the number of ranks follows from other options",
}
INHERITED = "the ranks inherit the environment of nnlo; set the variable before you start nnlo"
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


def set_launch_keys(draft: ExperimentDraft, command: CommandLine, kind: Kind = "training") -> None:
    """Set ranks, GPUs, threads and the limits of the job; record the other parts of the command.

    Args:
        draft: receives the settings.
        command: the command with its launcher.
        kind: training; search, whose job contains many trainings; session, whose ranks follow from other options.
    """
    ranks, source = command.layout.ranks
    if kind == "training":
        processes = f"{ranks} process{'es' * (ranks > 1)}"
        draft.set("parallel.ranks", ranks, f"{processes} ({source})" if source else processes)
    elif source:
        draft.remarks.append(f"{source}: {RANKS_OF[kind]}")
    _set_gpus(draft, command, ranks)
    _set_threads(draft, command)
    if command.container:
        draft.set("resources.container", command.container, command.container)
    if kind == "search":
        draft.remarks += [
            f"{text}: request it for the job in which `nnlo search` runs" for text in _job_texts(command)
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


def _set_threads(draft: ExperimentDraft, command: CommandLine) -> None:
    if command.environment.get("OMP_NUM_THREADS"):
        draft.set("parallel.threads_per_rank", max(1, command.threads), "OMP_NUM_THREADS")
    elif command.threads > 1:
        draft.set("parallel.threads_per_rank", command.threads, command.layout.threads[1])


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


def _job_texts(command: CommandLine) -> list[str]:
    """Return the options of nodes, time, memory, queue and account as they were written."""
    settings = command.layout.settings
    meanings = ("nodes", "hosts", "runtime", "memory_per_node", "memory_per_cpu", "partition", "account")
    return [text for text in (settings.source(meaning) for meaning in meanings) if text]


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
            draft.remarks.append(f"{written}: {INHERITED}")
