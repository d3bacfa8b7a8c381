"""Warnings about ranks and GPUs that this machine, or the Slurm partition, does not have."""

import os
import shutil

from nnlo_lib.config import Run
from nnlo_lib.config.resources import RunResources
from nnlo_lib.core.batch_system import query_scheduler

QUERY_TIMEOUT_S = 3  # the scheduler may be overloaded; a warning is not worth more


def machine_warnings(runs: dict[str, Run]) -> list[str]:
    """Return a warning for each run that needs more cores or GPUs than there are."""
    partitions = _slurm_partitions()
    found = []
    for name, run in runs.items():
        text = _partition_warning(run, partitions) if partitions else _local_warning(run)
        found += [f"run {name}: {text}"] if text else []
    return found


def _local_warning(run: Run) -> str:
    needs, cores = RunResources(run), len(os.sched_getaffinity(0))
    workers = needs.processes - (run.algorithm.servers if needs.processes > 1 else 0)  # a server mostly waits
    wanted = workers * needs.threads_per_process
    if wanted > cores:
        return f"{workers} workers with {needs.threads_per_process} threads each on the {cores} cores of this machine will be slow"
    if needs.gpus and needs.gpus > (count := _gpus()):
        return f"parallel.gpus_per_rank needs {needs.gpus} GPUs, but this machine has {count}"
    return ""


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _partition_warning(run: Run, partitions: dict[str, tuple[int, int, bool]]) -> str:
    """Return the warning for a run on Slurm.

    Args:
        run: the run.
        partitions: nodes, cores of a node and whether there are GPUs, by partition; the default has the name "".
    """
    needs, wanted = RunResources(run), run.resources.partition or ""
    if wanted not in partitions:
        return f"resources.partition: Slurm has no partition '{wanted}'; it has {', '.join(filter(None, partitions))}"
    nodes, cores, has_gpus = partitions[wanted]
    label = f"the partition {wanted}" if wanted else "the default partition"
    if needs.nodes > nodes:
        return f"resources.nodes: {needs.nodes} nodes, but {label} has {nodes}"
    if needs.cores > needs.nodes * cores:
        return f"{needs.cores} cores on {needs.nodes} nodes, but a node of {label} has {cores}; raise resources.nodes"
    return f"parallel.gpus_per_rank needs GPUs, but {label} has none" if needs.gpus and not has_gpus else ""


def _slurm_partitions() -> dict[str, tuple[int, int, bool]]:
    """Return nodes, cores of a node and whether there are GPUs by partition; empty without a Slurm that answers."""
    if not shutil.which("sinfo"):
        return {}
    lines = query_scheduler(
        "sinfo", "--all", "--noheader", "--format=%P|%D|%c|%G", timeout=QUERY_TIMEOUT_S
    ).splitlines()
    found: dict[str, tuple[int, int, bool]] = {}
    for name, nodes, cores, gres in (line.split("|") for line in lines if line.count("|") == 3):
        # A partition of different nodes has several lines; `16+` is the smallest of several numbers.
        for key in (name.rstrip("*"), *([""] if name.endswith("*") else [])):
            before = found.get(key, (0, 0, False))
            found[key] = (
                before[0] + int(nodes),
                max(before[1], int(cores.rstrip("+"))),
                before[2] or "gpu" in gres,
            )
    return found
