"""Programs that train least squares with gossip algorithms on every rank and record their events."""

import torch
from pydantic import TypeAdapter

from helpers.least_squares import START, gradient, make_replica, rows
from nnlo_lib.algorithms.base import Algorithm, SampleShare
from nnlo_lib.algorithms.gossip.adpsgd import ADPSGD
from nnlo_lib.algorithms.gossip.gosgd import GoSGD
from nnlo_lib.algorithms.gossip.sgp import SGP
from nnlo_lib.algorithms.worker_groups import GroupedWorkers
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.factory import build_compressor
from nnlo_lib.config.compression import CompressionConfig
from nnlo_lib.config.topology import TopologyConfig
from nnlo_lib.topology import build_topology
from nnlo_lib.train.replica.replica import Replica

SEED = 5


def several(comm: Communicator, calls: list[list]) -> list[dict]:
    """Run several programs in sequence on the same ranks, because ranks are slow to start."""
    results = []
    for program, *arguments in calls:
        comm.bytes_sent.clear()
        results.append(globals()[program](comm, *arguments))
    return results


def make(comm: Communicator, name: str, settings: dict) -> Algorithm:
    """Build a gossip algorithm.

    Args:
        comm: communicator of this rank.
        name: gosgd, sgp or adpsgd.
        settings: keyword arguments of gosgd, or the `topology` section of sgp and adpsgd; optionally `compression`.
    """
    kind = settings.get("compression", {"name": "none"})
    settings = {key: value for key, value in settings.items() if key != "compression"}
    cast = build_compressor(TypeAdapter(CompressionConfig).validate_python(kind), SEED)
    if name == "gosgd":
        return GoSGD(comm, SEED, **settings, compressor=cast)
    links = build_topology(TypeAdapter(TopologyConfig).validate_python(settings), comm.size, SEED)
    return SGP(comm, links, cast) if name == "sgp" else ADPSGD(comm, links, SEED, cast)


def learn(algorithm: Algorithm, replica: Replica, worker: int, step: int, count: int = 4) -> None:
    """Take one step on `count` samples."""
    replica.grad.zero_()
    if count:
        replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), rows(worker, step, count))))
    algorithm.on_gradient(replica, SampleShare(count, count))
    replica.step()
    algorithm.on_parameters(replica)


def report(comm: Communicator, algorithm: Algorithm, replica: Replica, path: list[list[float]]) -> dict:
    """Quiesce and return the state and counters of this rank; then finish the algorithm."""
    sent = comm.bytes_sent["parameters"]
    algorithm.quiesce(replica)
    told = {
        "path": path, "theta": replica.theta.tolist(), "weight": getattr(algorithm, "weight", 1.0), "bytes": sent,
        "steps": algorithm.local_steps, "counts": algorithm.histograms(),
        "answers": comm.bytes_sent["parameters"] - sent, "telemetry": algorithm.telemetry(replica),
    }  # fmt: skip
    algorithm.on_finish(replica)
    return told | {"published": replica.theta.tolist()}


def synchronous(
    comm: Communicator, name: str, settings: dict, counts: list[list[int]], pauses: list[int]
) -> dict:
    """Take one step for each count; after the steps in `pauses`, quiesce and resume in new objects."""
    replica, algorithm = make_replica("sgd"), make(comm, name, settings)
    algorithm.start(replica)
    path = []
    for step, count in enumerate(counts[comm.rank]):
        learn(algorithm, replica, comm.rank, step, count)
        assert not algorithm.should_stop(False)
        path.append(replica.theta.tolist())
        if step + 1 in pauses:
            replica, algorithm = resumed(comm, name, settings, replica, algorithm)
    return report(comm, algorithm, replica, path)


def resumed(
    comm: Communicator, name: str, settings: dict, replica: Replica, algorithm: Algorithm
) -> tuple[Replica, Algorithm]:
    """Quiesce; return a new replica and a new algorithm with the same state."""
    algorithm.quiesce(replica)
    tensors = {key: tensor.clone() for key, tensor in {**replica.state(), **algorithm.state()}.items()}
    again, fresh = make_replica("sgd"), make(comm, name, settings)
    again.load_state(tensors)
    fresh.load_state(tensors)
    assert all(torch.equal(tensors[key], tensor) for key, tensor in fresh.state().items())
    return again, fresh


def asynchronous(comm: Communicator, name: str, settings: dict, steps: list[int], wisher: int = -1) -> dict:
    """Take steps at unequal speeds; return the report with the step of the stop.

    Args:
        comm: communicator of this rank.
        name: name of the algorithm.
        settings: settings of the algorithm, see `make`.
        steps: number of steps of each rank.
        wisher: rank that requests a stop after its fifth step; training then resumes. -1: no stop.
    """
    replica, algorithm = make_replica("sgd"), make(comm, name, settings)
    algorithm.start(replica)
    step, stopped = 0, 0
    while step < steps[comm.rank]:
        comm.advance_clock(10 * (comm.rank + 1) + step % 3)
        learn(algorithm, replica, comm.rank, step)
        step += 1
        if algorithm.should_stop(comm.rank == wisher and step == 5):
            stopped = step
            break
    if wisher >= 0:
        algorithm.quiesce(replica)
        assert not algorithm.should_stop(False), "a stop is forgotten once all have paused"
        replica, algorithm = resumed(comm, name, settings, replica, algorithm)
        for rest in range(step, steps[comm.rank]):
            learn(algorithm, replica, comm.rank, rest)
    return report(comm, algorithm, replica, []) | {"stopped": stopped}


def recorded(comm: Communicator, name: str, settings: dict, steps: int) -> dict:
    """Take steps asynchronously at unequal speeds; return the report and the sequence of this rank's events."""
    replica, algorithm = make_replica("sgd"), make(comm, name, settings)
    algorithm.start(replica)
    events: list[tuple] = []
    send, receive, local_step = comm.send, comm.receive, replica.step

    def spy_send(vector, to, tag=0, purpose="parameters"):
        events.append(("send", to, tag))
        send(vector, to, tag, purpose)

    def spy_receive(vector, source, tag=0):
        receive(vector, source, tag)
        events.append(("receive", source, tag))

    def spy_step():
        events.append(("step",))
        local_step()

    comm.send, comm.receive, replica.step = spy_send, spy_receive, spy_step
    for step in range(steps):
        comm.advance_clock(10 * (comm.rank + 1) + step % 3)
        events.append(("gradient", step))
        learn(algorithm, replica, comm.rank, step)
    return report(comm, algorithm, replica, []) | {"events": events}


def grouped(comm: Communicator, settings: dict, size: int, steps: int) -> dict:
    """Train by adpsgd with `size` processes per worker, workers at unequal speeds; return this rank's parameters.

    Args:
        comm: communicator of all ranks.
        settings: `topology` section of the graph between the workers.
        size: number of processes per worker.
        steps: number of steps of each worker.
    """
    replica = make_replica("sgd")
    algorithm = GroupedWorkers(comm, size, 0, lambda leaders: make(leaders, "adpsgd", settings))
    algorithm.start(replica)
    for step in range(steps):
        comm.advance_clock(10 * (comm.rank // size + 1) + step % 3)
        replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), rows(comm.rank, step))))
        algorithm.on_gradient(replica, SampleShare(1, 1))
        if not algorithm.owns_step:
            replica.step()
        algorithm.on_parameters(replica)
        assert not algorithm.should_stop(False)
    algorithm.quiesce(replica)
    told = {
        "theta": replica.theta.tolist(),
        "telemetry": algorithm.telemetry(replica),
        "averages": sum(algorithm.histograms().get("staleness", {}).values()),
    }
    algorithm.on_finish(replica)
    return told | {"published": replica.theta.tolist()}


def mixed(
    comm: Communicator,
    name: str,
    settings: dict,
    durations: list[list[int]],
    dtype: str = "float64",
    copies: int = 1,
) -> dict:
    """Mix parameters that differ between ranks, without gradient steps.

    Args:
        comm: communicator of this rank.
        name: name of the algorithm.
        settings: settings of the algorithm, see `make`.
        durations: for each rank, the samples by which the clock advances before each step.
        dtype: name of the parameters' dtype.
        copies: number of copies of START in the parameter vector.
    """
    replica = Vector(getattr(torch, dtype), copies)
    algorithm = make(comm, name, settings)
    algorithm.start(replica)
    replica.theta.mul_(comm.rank + 1)
    for samples in durations[comm.rank]:
        comm.advance_clock(samples)
        algorithm.on_gradient(replica, SampleShare(1, 1))
        algorithm.on_parameters(replica)
        assert not algorithm.should_stop(False)
    told = report(comm, algorithm, replica, [])
    return told | {key: told[key][: len(START)] for key in ("theta", "published")}


class Vector:
    """A replica without an optimizer: only mixing changes its parameters."""

    def __init__(self, dtype: torch.dtype, copies: int) -> None:
        self.theta = torch.tensor(START, dtype=dtype).repeat(copies)
        self.grad, self.buffers = torch.zeros_like(self.theta), torch.empty(0, dtype=dtype)
