"""Least squares in float64, f(theta) = |A theta - b|^2 / 2m, and programs that train it on every rank."""

import numpy as np
import torch

from nnlo_lib.algorithms.base import Algorithm, SampleShare
from nnlo_lib.algorithms.collective.allreduce import AllReduce
from nnlo_lib.algorithms.collective.average import Average
from nnlo_lib.algorithms.collective.diloco import DiLoCo
from nnlo_lib.algorithms.parameter_server.downpour import Downpour
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.train.replica.replica import Replica

DIMENSION, ROWS, BATCH = 7, 96, 4
GENERATOR = np.random.Generator(np.random.PCG64(1))
A, B = GENERATOR.normal(size=(ROWS, DIMENSION)), GENERATOR.normal(size=ROWS)
START = GENERATOR.normal(size=DIMENSION)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "plain": (torch.optim.SGD, {"lr": 0.05}),
}


class Momentum:
    """SGD with momentum in numpy: v <- mu v + g; theta <- theta - lr v."""

    def __init__(self, lr=0.05, mu=0.9):
        self.lr, self.mu, self.v = lr, mu, np.zeros(DIMENSION)

    def step(self, theta, g):
        self.v = self.mu * self.v + g
        return theta - self.lr * self.v


def rows(worker: int, step: int, count: int = BATCH) -> np.ndarray:
    """Return the indices of the `count` samples of a worker's step: a fixed walk through all rows."""
    return (np.arange(count) + 11 * step + 29 * worker) % ROWS


def gradient(theta: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean loss over `samples`."""
    return A[samples].T @ (A[samples] @ theta - B[samples]) / len(samples)


class Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(START))


def make_replica(optimizer: str) -> Replica:
    replica = Replica(Linear())
    kind, options = OPTIMIZERS[optimizer]
    replica.set_optimizer(kind, **options)
    return replica


def work(
    algorithm: Algorithm, replica: Replica, worker: int, counts: list[int], total: list[int]
) -> list[list[float]]:
    """Take one step for each count; return the parameters after each step.

    Args:
        algorithm: algorithm that has started.
        replica: replica of this worker.
        worker: number of the worker; selects the samples.
        counts: number of samples of this worker at each step.
        total: number of samples of all workers at each step.
    """
    path = []
    for step, (count, together) in enumerate(zip(counts, total, strict=True)):
        if count:
            samples = rows(worker, step, count)
            replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), samples)))
        else:
            replica.grad.zero_()
        algorithm.on_gradient(replica, SampleShare(count, together))
        if not algorithm.owns_step:
            replica.step()
        algorithm.on_parameters(replica)
        path.append(replica.theta.tolist())
    return path


def allreduce(comm: Communicator, optimizer: str, counts: list[list[int]]) -> dict[str, object]:
    """Train with all-reduce; `counts` contains each rank's number of samples at each step."""
    replica, algorithm = make_replica(optimizer), AllReduce(comm)
    algorithm.start(replica)
    path = work(
        algorithm, replica, comm.rank, counts[comm.rank], [sum(step) for step in zip(*counts, strict=True)]
    )
    return {"path": path, "bytes": comm.bytes_sent["gradient"]}


def periodic(comm: Communicator, name: str, counts: list[list[int]], *settings: float) -> dict[str, object]:
    """Train with an algorithm that averages every few steps.

    Args:
        comm: communicator of this rank.
        name: average or diloco.
        counts: each rank's number of samples at each step.
        *settings: arguments of the algorithm's class after the communicator.
    """
    replica, algorithm = make_replica("sgd"), {"average": Average, "diloco": DiLoCo}[name](comm, *settings)
    algorithm.start(replica)
    total = [sum(step) for step in zip(*counts, strict=True)]
    path = work(algorithm, replica, comm.rank, counts[comm.rank], total)
    before = comm.bytes_sent["parameters"]
    algorithm.quiesce(replica)
    algorithm.before_evaluation(replica)
    end = comm.bytes_sent["parameters"] - before
    return {"path": path, "theta": replica.theta.tolist(), "bytes": before, "end": end}


def downpour(
    comm: Communicator, optimizer: str, counts: list[list[int]], synchronous: bool, sync_every: int
) -> dict[str, object]:
    """Train with Downpour; rank 0 is the server.

    Args:
        comm: communicator of this rank.
        optimizer: key of OPTIMIZERS.
        counts: each worker's number of samples at each step.
        synchronous: whether the server waits for all workers before each update.
        sync_every: steps between pushes.
    """
    replica, algorithm = make_replica(optimizer), Downpour(comm, synchronous, sync_every)
    algorithm.start(replica)
    path: list[list[float]] = []
    if comm.rank == 0:
        algorithm.serve(replica, lambda: False)
    else:
        total = [sum(step) for step in zip(*counts, strict=True)]
        path = work(algorithm, replica, comm.rank - 1, counts[comm.rank - 1], total)
    algorithm.quiesce(replica)
    algorithm.before_evaluation(replica)
    return {
        "path": path, "theta": replica.theta.tolist(), "updates": algorithm.updates,
        "gradient": comm.bytes_sent["gradient"], "parameters": comm.bytes_sent["parameters"],
    }  # fmt: skip


def served(comm: Communicator, steps: int) -> list[tuple[int, list[float]]]:
    """Train with asynchronous Downpour at unequal speeds; the server returns (worker, parameters) of its answers."""
    replica, algorithm = make_replica("sgd"), Downpour(comm)
    algorithm.start(replica)
    if comm.rank:
        for step in range(steps):
            comm.advance_clock(10 * comm.rank + step % 3)
            work_one(algorithm, replica, comm.rank - 1, step)
        algorithm.quiesce(replica)
        return []
    events: list[tuple[int, list[float]]] = []
    answer = comm.send

    def spy(vector, to, tag=0, purpose="parameters"):
        events.append((to, vector.tolist()))
        answer(vector, to, tag, purpose)

    comm.send = spy
    algorithm.serve(replica, lambda: False)
    return events


def work_one(algorithm: Algorithm, replica: Replica, worker: int, step: int) -> None:
    samples = rows(worker, step)
    replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), samples)))
    algorithm.on_gradient(replica, SampleShare(BATCH, BATCH))
    algorithm.on_parameters(replica)


def gradient_of(theta, rank, step, count=BATCH):
    """Return the gradient of a rank's step on `count` samples, zero if `count` is 0."""
    return gradient(theta, rows(rank, step, count)) if count else np.zeros(DIMENSION)
