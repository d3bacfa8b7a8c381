"""Build the algorithm that an experiment describes."""

from nnlo_lib import config
from nnlo_lib.algorithms.algorithm import Algorithm, Role
from nnlo_lib.algorithms.allreduce import AllReduce
from nnlo_lib.algorithms.average import Average
from nnlo_lib.algorithms.diloco import DiLoCo
from nnlo_lib.algorithms.downpour import Downpour
from nnlo_lib.algorithms.grouped import Grouped
from nnlo_lib.comm.communicator import Communicator

CLASSES: dict[str, type[Algorithm]] = {
    "allreduce": AllReduce,
    "average": Average,
    "diloco": DiLoCo,
    "downpour": Downpour,
}


def build(settings: config.Algorithm, processes_per_worker: int, comm: Communicator) -> Algorithm:
    """Return the rank's part of the algorithm."""
    if processes_per_worker > 1:
        return Grouped(comm, processes_per_worker, lambda leaders: _single(settings, leaders))
    return _single(settings, comm)


def _single(settings: config.Algorithm, comm: Communicator) -> Algorithm:
    match settings:
        case config.AllReduce():
            return AllReduce(comm)
        case config.Average():
            return Average(comm, settings.sync_every)
        case config.DiLoCo():
            return DiLoCo(comm, settings.sync_every, settings.outer_lr, settings.outer_momentum)
        case config.Downpour():
            return Downpour(comm, settings.synchronous, settings.sync_every)


def roles(settings: config.Algorithm, size: int) -> list[Role]:
    """Return the role of each of `size` ranks."""
    return CLASSES[settings.name].roles(size)
