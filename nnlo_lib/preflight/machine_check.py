"""Warnings about ranks and GPUs that this machine does not have."""

import os

from nnlo_lib.config import Run
from nnlo_lib.config.resources import RunResources


def machine_warnings(runs: dict[str, Run]) -> list[str]:
    """Return a warning for each run on one node that needs more cores or GPUs than this machine has."""
    return [f"run {name}: {text}" for name, run in runs.items() if (text := _warning(run))]


def _warning(run: Run) -> str:
    needs, cores = RunResources(run), len(os.sched_getaffinity(0))
    workers = needs.processes - (run.algorithm.servers if needs.processes > 1 else 0)  # a server mostly waits
    wanted = workers * needs.threads_per_process
    if needs.nodes > 1:
        return ""
    if wanted > cores:
        return f"{workers} workers with {needs.threads_per_process} threads each on the {cores} cores of this machine will be slow"
    if needs.gpus and needs.gpus > (count := _gpus()):
        return f"parallel.gpus_per_rank needs {needs.gpus} GPUs, but this machine has {count}"
    return ""


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
