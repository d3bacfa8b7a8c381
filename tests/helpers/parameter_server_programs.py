"""Programs that train least squares (see least_squares.py) with parameter-server algorithms on every rank."""

import numpy as np
import torch
from pydantic import TypeAdapter

from helpers.least_squares import BATCH, Linear, gradient, rows
from nnlo_lib.algorithms.base import Algorithm, SampleShare
from nnlo_lib.algorithms.collective.allreduce import AllReduce
from nnlo_lib.algorithms.collective.average import Average
from nnlo_lib.algorithms.collective.diloco import DiLoCo
from nnlo_lib.algorithms.parameter_server.client import Header
from nnlo_lib.algorithms.parameter_server.downpour import Downpour
from nnlo_lib.algorithms.parameter_server.easgd import EASGD
from nnlo_lib.algorithms.parameter_server.gem import GEM
from nnlo_lib.algorithms.worker_groups import GroupedWorkers
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback
from nnlo_lib.comm.compression.factory import build_compressor
from nnlo_lib.config.compression import CompressionConfig
from nnlo_lib.train.replica.replica import Replica

CLASSES = {
    "allreduce": AllReduce, "average": Average, "diloco": DiLoCo, "downpour": Downpour, "easgd": EASGD, "eamsgd": EASGD,
    "gem": GEM,
}  # fmt: skip


def make_replica(name: str) -> Replica:
    replica = Replica(Linear())
    replica.set_optimizer(torch.optim.SGD, lr=0.05, momentum=0.0 if name in ("gem", "eamsgd") else 0.9)
    return replica


def make(comm: Communicator, name: str, settings: dict, servers: int, group: int) -> Algorithm:
    if group > 1:
        return GroupedWorkers(comm, group, servers, lambda leaders: alone(leaders, name, settings))
    return alone(comm, name, settings)


def alone(comm: Communicator, name: str, settings: dict) -> Algorithm:
    """Build an algorithm without worker groups; `settings` may contain a `compression` section."""
    if "compression" not in settings:
        return CLASSES[name](comm, **settings)
    kind = TypeAdapter(CompressionConfig).validate_python(settings["compression"])
    others = {key: value for key, value in settings.items() if key != "compression"}
    return CLASSES[name](comm, **others, feedback=ErrorFeedback(build_compressor(kind, seed=0), comm.rank))


def trained(
    comm: Communicator,
    name: str,
    settings: dict,
    counts: list[list[int]],
    group: int = 1,
    epochs: int = 1,
    joint: int = 1,
) -> dict[str, object]:
    """Train and return parameters, bytes sent, telemetry and counters of this rank.

    Args:
        comm: communicator of this rank.
        name: key of CLASSES.
        settings: arguments of the algorithm's class; optionally `compression`.
        counts: each worker process's number of samples at each step of an epoch.
        group: number of processes per worker.
        epochs: number of epochs.
        joint: number of processes of `counts` whose samples one rank processes alone.
    """
    servers = comm.size - len(counts) // joint
    replica = make_replica(name)
    algorithm = make(comm, name, settings, servers, group)
    algorithm.start(replica)
    start, messages = comm.bytes_sent.copy(), comm.messages_sent.copy()
    first = (comm.rank - servers) * joint
    path, telemetry = [], []
    for _ in range(epochs):
        if comm.rank < servers:
            algorithm.serve(replica, lambda: False)
        else:
            path += work(algorithm, replica, range(first, first + joint), counts)
        algorithm.quiesce(replica)
        sent = dict(comm.bytes_sent - start)
        algorithm.before_evaluation(replica)
        telemetry.append(algorithm.telemetry(replica))
        centre = replica.theta.tolist()
        algorithm.after_evaluation(replica)
    own = replica.theta.tolist()
    algorithm.on_finish(replica)
    outer = getattr(algorithm, "_outer", algorithm)
    return {
        "path": path, "centre": centre, "own": own, "published": replica.theta.tolist(), "sent": sent,
        "telemetry": telemetry, "staleness": sorted(algorithm.histograms().get("staleness", {}).items()),
        "updates": getattr(outer, "updates", 0), "pushes": getattr(outer, "pushes", 0),
        "messages": dict(comm.messages_sent - messages),
    }  # fmt: skip


def several(comm: Communicator, calls: list[list]) -> list[dict[str, object]]:
    """Run several trainings in sequence on the same ranks, because MPI ranks are slow to start."""
    return [trained(comm, *call) for call in calls]


def work(
    algorithm: Algorithm, replica: Replica, processes: range, counts: list[list[int]]
) -> list[list[float]]:
    """Take the steps of an epoch with the samples of all `processes`; return the parameters after each step."""
    path = []
    for step in range(len(counts[processes[0]])):
        samples = np.concatenate([rows(process, step, counts[process][step]) for process in processes])
        together = sum(mine[step] for mine in counts if len(mine) > step)
        path += step_once(algorithm, replica, samples, together)
    return path


def step_once(
    algorithm: Algorithm, replica: Replica, samples: np.ndarray, together: int
) -> list[list[float]]:
    share = SampleShare(len(samples), together)
    algorithm.on_batch(replica, share)
    replica.grad.zero_()
    if len(samples):
        replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), samples)))
    algorithm.on_gradient(replica, share)
    if not algorithm.owns_step:
        replica.step()
    algorithm.on_parameters(replica)
    return [replica.theta.tolist()]


def recorded(
    comm: Communicator, name: str, settings: dict, steps: int, unequal: int = 10
) -> dict[str, object]:
    """Train with workers of unequal speed; return the sent messages as (target, kind, values), in order.

    Args:
        comm: communicator of this rank; rank 0 is the server.
        name: key of CLASSES.
        settings: arguments of the algorithm's class.
        steps: number of steps of each worker.
        unequal: samples by which the clock advances per step and rank.
    """
    replica, algorithm = make_replica(name), alone(comm, name, settings)
    algorithm.start(replica)
    events: list[tuple[int, int, list[float]]] = []
    path = []
    send = comm.send

    def spy(vector, to, tag=0, purpose="parameters"):
        header = Header.from_tag(tag)
        events.append((to, header.kind, vector.tolist()))
        send(vector, to, tag, purpose)

    comm.send = spy
    if comm.rank == 0:
        algorithm.serve(replica, lambda: False)
    else:
        for step in range(steps):
            comm.advance_clock(unequal * comm.rank + step % 3)
            path += step_once(algorithm, replica, rows(comm.rank - 1, step), BATCH)
    algorithm.quiesce(replica)
    return {
        "events": events, "path": path, "theta": replica.theta.tolist(),
        "staleness": sorted(algorithm.histograms().get("staleness", {}).items()),
    }  # fmt: skip


def paused(
    comm: Communicator, name: str, settings: dict, workers: int, steps: int, stops: list[int], group: int = 1
) -> dict[str, object]:
    """Train synchronously with stops; after each stop all ranks resume from their saved state.

    Args:
        comm: communicator of this rank.
        name: key of CLASSES.
        settings: arguments of the algorithm's class.
        workers: number of worker processes.
        steps: number of steps of each worker.
        stops: steps at which the last rank requests a stop.
        group: number of processes per worker.
    """
    servers, done, parts, path = comm.size - workers, 0, 0, []
    saved: dict[str, torch.Tensor] | None = None
    wanted = list(stops)
    while True:
        replica = make_replica(name)
        algorithm = make(comm, name, settings, servers, group)
        if saved is None:
            algorithm.start(replica)
        else:
            replica.load_state(saved)
            algorithm.load_state(saved)
        parts += 1
        if comm.rank < servers:
            algorithm.serve(replica, lambda: False)
        else:
            while done < steps:
                path += step_once(algorithm, replica, rows(comm.rank - servers, done), BATCH * workers)
                done += 1
                if algorithm.should_stop(comm.rank == comm.size - 1 and bool(wanted) and done >= wanted[0]):
                    break
        algorithm.quiesce(replica)
        saved = {key: value.clone() for key, value in {**replica.state(), **algorithm.state()}.items()}
        wanted = [wish for wish in wanted if wish > done]
        if all(comm.gather(done == steps or comm.rank < servers)):
            break
    algorithm.before_evaluation(replica)
    telemetry = algorithm.telemetry(replica)
    return {"path": path, "theta": replica.theta.tolist(), "parts": parts, "telemetry": telemetry}
