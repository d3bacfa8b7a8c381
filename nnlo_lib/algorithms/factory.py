"""Build the algorithm of a run."""

from nnlo_lib.algorithms.base import Algorithm, Role
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.algorithms.worker_groups import GroupedWorkers
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.core.lazy_import import load_implementation


def build_algorithm(run: Run, comm: Communicator, seed: int) -> Algorithm:
    """Return this rank's instance of the algorithm, in GroupedWorkers if workers have several processes.

    Args:
        run: settings of the run.
        comm: communicator of all ranks, which all call this.
        seed: seed of the run; all ranks must give the same one.
    """
    group = run.parallel.processes_per_worker
    if group > 1:
        return GroupedWorkers(
            comm, group, run.algorithm.servers, lambda leaders: _build_on(leaders, run, seed)
        )
    return _build_on(comm, run, seed)


def _build_on(comm: Communicator, run: Run, seed: int) -> Algorithm:
    kind: type[Algorithm] = load_implementation(run.algorithm.reference)
    return kind.from_config(run.algorithm, AlgorithmContext(comm, seed, run.compression, run.topology))


def roles(run: Run, size: int) -> list[Role]:
    """Return the role of each of `size` ranks: the servers are the first ranks."""
    return ["server" if rank < run.algorithm.servers else "worker" for rank in range(size)]
