"""Programs that train least squares on every node of a graph with any neighbor-averaging algorithm."""

import torch

from helpers.least_squares import BATCH, make_replica, work
from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run


def algorithm_of(comm: Communicator, algorithm: dict, topology: dict, compression: dict) -> Algorithm:
    settings = {"algorithm": algorithm, "topology": topology, "compression": compression}
    return build_algorithm(Run.model_validate(settings | {"parallel": {"ranks": comm.size}}), comm, seed=0)


def neighbors(
    comm: Communicator, algorithm: dict, topology: dict, optimizer: str, steps: int, compression: dict
) -> dict[str, object]:
    """Take `steps` steps with full batches; return the parameters after each step, bytes sent and telemetry.

    Args:
        comm: communicator of this node.
        algorithm: `algorithm` section.
        topology: `topology` section.
        optimizer: key of least_squares.OPTIMIZERS.
        steps: number of steps.
        compression: `compression` section.
    """
    replica, method = make_replica(optimizer), algorithm_of(comm, algorithm, topology, compression)
    method.start(replica)
    before = comm.bytes_sent["parameters"]
    path = work(method, replica, comm.rank, [BATCH] * steps, [BATCH * comm.size] * steps)
    sent = comm.bytes_sent["parameters"] - before
    method.quiesce(replica)
    return {"path": path, "bytes": sent, "telemetry": method.telemetry(replica)}


def each_case(comm: Communicator, cases: list[list]) -> list[dict[str, object]]:
    """Return the results of `neighbors` for each list of arguments."""
    return [neighbors(comm, *case) for case in cases]


def interrupted(
    comm: Communicator, algorithm: dict, topology: dict, steps: int, compression: dict
) -> list[list[float]]:
    """Train like `neighbors`, but before each step save the state and load it into new objects.

    Args:
        comm: communicator of this node.
        algorithm: `algorithm` section.
        topology: `topology` section.
        steps: number of steps.
        compression: `compression` section.

    Returns:
        The parameters after each step.
    """
    path, replica = [], make_replica("sgd")
    method = algorithm_of(comm, algorithm, topology, compression)
    method.start(replica)
    for step in range(steps):
        fresh, copy = make_replica("sgd"), {}
        copy |= {name: tensor.clone() for name, tensor in {**replica.state(), **method.state()}.items()}
        method = algorithm_of(comm, algorithm, topology, compression)
        method.start(make_replica("sgd"))
        fresh.load_state(copy)
        method.load_state(copy)
        replica = fresh
        path += work_from(method, replica, comm.rank, step, comm.size)
    return path


def work_from(method: Algorithm, replica, rank: int, step: int, ranks: int) -> list[list[float]]:
    from helpers.least_squares import gradient, rows
    from nnlo_lib.algorithms.base import SampleShare

    replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), rows(rank, step))))
    method.on_gradient(replica, SampleShare(BATCH, BATCH * ranks))
    if not method.owns_step:
        replica.step()
    method.on_parameters(replica)
    return [replica.theta.tolist()]
