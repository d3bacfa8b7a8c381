"""Assignment of a host's GPUs to its rank groups, so that the groups use different GPUs."""

import os
from collections import Counter
from collections.abc import Sequence

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.visible_gpus import GPU_SUBSET, visible_gpus
from nnlo_lib.executors.gpu_slots import choose_gpus
from nnlo_lib.executors.mpi_pool.world import PoolWorld


def assign_gpus(world: PoolWorld, experiment: Experiment) -> str:
    """Restrict this rank to the GPUs of its group; return the error, or an empty string on success."""
    space = experiment.search.space if experiment.search else {}
    if not (experiment.parallel.gpus_per_rank or "parallel.gpus_per_rank" in space):
        return ""
    shown = visible_gpus()
    # The scheduler may show each rank its own GPU; otherwise, all ranks share this one.
    if len(shown) == 1:
        return ""
    try:
        group_gpus = gpus_of_group(world, experiment, shown)
    except UserError as error:
        return str(error)
    os.environ[GPU_SUBSET] = ",".join(map(str, group_gpus))
    return ""


def gpus_of_group(world: PoolWorld, experiment: Experiment, shown: Sequence[int]) -> list[int]:
    """Assign the GPUs of this host to its rank groups in order; return the GPUs of this rank's group.

    Args:
        world: ranks of the allocation.
        experiment: experiment of the search.
        shown: visible GPUs of this host.

    Raises:
        UserError: if too few GPUs are left for a group.
    """
    host, ranks_per_gpu = world.processes[world.rank].host, experiment.parallel.ranks_per_gpu
    taken, group_gpus = Counter[int](), list[int]()
    # Each rank computes the GPUs of all groups up to its own, so that the ranks agree without messages.
    for group in range(world.group + 1):
        local_ranks = [
            rank for rank in _gpu_ranks(world, experiment, group) if world.processes[rank].host == host
        ]
        wanted = -(-len(local_ranks) // ranks_per_gpu)
        # A group with fewer ranks than `ranks_per_gpu` leaves slots of its GPU to other groups.
        chosen = choose_gpus(taken, shown, wanted, max(1, ranks_per_gpu // max(1, len(local_ranks))))
        if chosen is None:
            raise UserError(_shortage(world, group, wanted, len(shown), host))
        taken.update(chosen)
        group_gpus = chosen
    return group_gpus


def _gpu_ranks(world: PoolWorld, experiment: Experiment, group: int) -> Sequence[int]:
    """Return the ranks of a group that need a GPU.

    Servers that use no GPU are excluded, but only if all trials have the same algorithm.

    Args:
        world: ranks of the allocation.
        experiment: experiment of the search.
        group: number of the rank group.
    """
    searched = (
        any(key.startswith("algorithm") for key in experiment.search.space) if experiment.search else False
    )
    without_gpu = 0 if experiment.parallel.master_gpu or searched else experiment.algorithm.servers
    return world.members(group)[without_gpu:]


def _shortage(world: PoolWorld, group: int, wanted: int, shown: int, host: str) -> str:
    return (
        f"rank group {group} (of {len(world.groups)}, numbered from 0) needs {wanted} GPUs on {host}, but too few of the "
        f"{shown} visible GPUs are free; start fewer --ranks, let more ranks share a GPU (raise parallel.ranks_per_gpu), or "
        "train on CPUs (parallel.gpus_per_rank: 0)"
    )
