"""Assignment of a host's GPUs to its rank groups, so that the groups use different GPUs."""

import os
from collections import Counter
from collections.abc import Sequence

from nnlo_lib.config import Experiment, Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.gpu_slots import choose_gpus
from nnlo_lib.executors.mpi_pool.world import PoolWorld
from nnlo_lib.train.replica.device import GPU_SUBSET, visible_gpus


def assign_gpus(world: PoolWorld, experiment: Experiment) -> str:
    """Restrict this rank to the GPUs of its group; return the error, or an empty string on success."""
    if not _wanted(experiment):
        return ""
    shown = visible_gpus()
    if len(shown) == 1:
        return ""  # the scheduler may show each rank its own GPU; otherwise, all ranks share this one
    try:
        mine = gpus_of_group(world, experiment, shown)
    except UserError as error:
        return str(error)
    os.environ[GPU_SUBSET] = ",".join(map(str, mine))
    return ""


def gpus_of_group(world: PoolWorld, experiment: Experiment, shown: Sequence[int]) -> list[int]:
    """Assign the GPUs of this host to its rank groups in order; return the GPUs of this rank's group.

    Args:
        shown: visible GPUs.

    Raises:
        UserError: if too few GPUs are left for a group.
    """
    host, each = world.processes[world.rank].host, experiment.parallel.ranks_per_gpu
    taken, mine = Counter[int](), list[int]()
    for block in range(world.block + 1):
        here = [rank for rank in _computing(world, experiment, block) if world.processes[rank].host == host]
        wanted = -(-len(here) // each)
        chosen = choose_gpus(taken, shown, wanted, max(1, each // max(1, len(here))))
        if chosen is None:
            raise UserError(_too_few(world, block, wanted, len(shown), host))
        taken.update(chosen)
        mine = chosen
    return mine


def _computing(world: PoolWorld, experiment: Experiment, block: int) -> Sequence[int]:
    """Return the ranks of a group that have a GPU.

    Servers without a GPU are left out only if all trials have the same algorithm.
    """
    searched = (
        any(key.startswith("algorithm") for key in experiment.search.space) if experiment.search else False
    )
    spared = 0 if experiment.parallel.master_gpu or searched else _servers(experiment)
    return world.members(block)[spared:]


def _servers(run: Run) -> int:
    return run.algorithm.servers


def _wanted(experiment: Experiment) -> bool:
    """Return True if a trial may compute on GPUs."""
    space = experiment.search.space if experiment.search else {}
    return bool(experiment.parallel.gpus_per_rank) or "parallel.gpus_per_rank" in space


def _too_few(world: PoolWorld, block: int, wanted: int, shown: int, host: str) -> str:
    return (
        f"block {block} of {len(world.blocks)} wants {wanted} of the {shown} GPUs that are visible on {host}, but those "
        "before it have taken them; take fewer --ranks, let more ranks share one (parallel.ranks_per_gpu), or compute on "
        "processors (parallel.gpus_per_rank: 0)"
    )
