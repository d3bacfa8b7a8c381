"""Least squares in float64, f(theta) = |A theta - b|^2 / 2m: in numpy, and trained on every rank by any algorithm."""

import numpy as np
import torch

from nnlo_lib.algorithms.base import Algorithm, SampleShare
from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.train.replica.replica import Replica

DIMENSION, ROWS, BATCH, STEPS, SEED = 7, 96, 4, 50, 0
VECTOR = 8 * DIMENSION  # bytes
GENERATOR = np.random.Generator(np.random.PCG64(1))
A, B = GENERATOR.normal(size=(ROWS, DIMENSION)), GENERATOR.normal(size=ROWS)
START = GENERATOR.normal(size=DIMENSION)
OPTIMIZERS = {
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "sgd": (torch.optim.SGD, {"lr": 0.05}),
}
CLOSE = {"rtol": 0, "atol": 1e-9}


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
    """Return the gradient of the mean loss over `samples`, zero without samples."""
    return A[samples].T @ (A[samples] @ theta - B[samples]) / max(len(samples), 1)


def gradient_of(theta: np.ndarray, worker: int, step: int, count: int = BATCH) -> np.ndarray:
    """Return the gradient of a worker's step."""
    return gradient(theta, rows(worker, step, count))


def full(workers: int, steps: int = STEPS) -> list[list[int]]:
    """Return full batches for every worker."""
    return [[BATCH] * steps] * workers


def uneven(workers: int) -> list[list[int]]:
    """Return batch sizes: full batches for every worker, and a last step with samples for the first worker only."""
    return [[BATCH] * (STEPS - 1) + [2 if worker == 0 else 0] for worker in range(workers)]


def shorter(workers: int) -> list[list[int]]:
    """Return batch sizes; every worker has fewer batches than the previous one."""
    return [[BATCH] * (STEPS - 6 * worker) for worker in range(workers)]


class Linear(torch.nn.Module):
    """A model with the parameters START."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(START, dtype=dtype))


def make_replica(optimizer: str, *model: object) -> Replica:
    replica = Replica(Linear(*model))
    kind, options = OPTIMIZERS[optimizer]
    replica.set_optimizer(kind, **options)
    return replica


def run_of(ranks: int, settings: dict) -> Run:
    """Return a run; `settings` has its section `algorithm`, and optionally topology, compression, train and `group`."""
    sections = {
        key: value
        for key, value in settings.items()
        if key in ("algorithm", "topology", "compression", "train")
    }
    parallel = {"ranks": ranks, "processes_per_worker": settings.get("group", 1)}
    return Run.model_validate({"train": {"optimizer": {"name": "sgd"}}, **sections, "parallel": parallel})


def algorithm_of(comm: Communicator, **settings: object) -> Algorithm:
    return build_algorithm(run_of(comm.size, settings), comm, SEED)


def train(comm: Communicator, settings: dict, counts: list[list[int]]) -> dict[str, object]:
    """Train and return parameters, bytes sent, telemetry and counters of this rank.

    Args:
        comm: communicator of this rank; the first ranks are the servers.
        settings: sections of the run (see `run_of`), and optionally
            optimizer: key of OPTIMIZERS,
            epochs: number of passes over `counts`,
            stops: steps in which the last rank requests a stop; all ranks then resume in new objects,
            pace: samples by which the clock advances per step and worker, so that workers have unequal speeds,
            record: return this rank's messages, gradients and steps in order,
            joint: number of processes of `counts` whose samples one rank processes alone.
        counts: each worker process's number of samples at each step of an epoch.
    """
    run = run_of(comm.size, settings)
    replica, algorithm = _new(comm, run, settings)
    algorithm.start(replica)
    start = comm.bytes_sent.copy()
    events = _record(comm, replica) if settings.get("record") else []
    joint, group = settings.get("joint", 1), settings.get("group", 1)
    worker = (comm.rank - run.algorithm.servers) * joint
    processes = range(worker, worker + joint)
    steps = len(counts[worker]) if worker >= 0 else 0
    stops, path, telemetry, pauses, position = list(settings.get("stops", ())), [], [], [], 0
    while len(telemetry) < settings.get("epochs", 1):
        if worker < 0:
            algorithm.serve(replica, lambda: False)
        for step in range(position, steps):
            if "pace" in settings:
                comm.advance_clock(settings["pace"] * (worker // group + 1) + step % 3)
            events.append(["gradient", step])
            samples = np.concatenate([rows(each, step, counts[each][step]) for each in processes])
            samples = samples[:0] if algorithm.rests else samples
            _step(algorithm, replica, samples, sum(mine[step] for mine in counts if len(mine) > step))
            path.append(replica.theta.tolist())
            position = step + 1
            wants_stop = comm.rank == comm.size - 1 and bool(stops) and position >= stops[0]
            if algorithm.should_stop(wants_stop):
                break
        algorithm.quiesce(replica)
        if not all(comm.gather(position == steps)):
            pauses.append(position)
            stops = [stop for stop in stops if stop > position]
            replica, algorithm = _resumed(comm, run, settings, replica, algorithm)
            continue
        sent = {purpose: (comm.bytes_sent - start)[purpose] for purpose in ("gradient", "parameters")}
        algorithm.before_evaluation(replica)
        telemetry.append(algorithm.telemetry(replica))
        centre, position = replica.theta.tolist(), 0
        algorithm.after_evaluation(replica)
    own = replica.theta.tolist()
    algorithm.on_finish(replica)
    return {
        "path": path, "centre": centre, "own": own, "published": replica.theta.tolist(), "telemetry": telemetry,
        "sent": sent, "pauses": pauses, "events": events, **counters(algorithm),
    }  # fmt: skip


def counters(algorithm: Algorithm) -> dict[str, object]:
    outer = getattr(algorithm, "_outer", algorithm)
    return {
        "staleness": sorted(algorithm.histograms().get("staleness", {}).items()), "weight": algorithm.weight,
        **{name: getattr(outer, name, 0) for name in ("updates", "pushes", "local_steps")},
    }  # fmt: skip


def _new(comm: Communicator, run: Run, settings: dict) -> tuple[Replica, Algorithm]:
    return make_replica(settings.get("optimizer", "momentum")), build_algorithm(run, comm, SEED)


def _step(algorithm: Algorithm, replica: Replica, samples: np.ndarray, global_count: int) -> None:
    share = SampleShare(len(samples), global_count)
    algorithm.on_batch(replica, share)
    replica.grad.copy_(torch.tensor(gradient(replica.theta.numpy().copy(), samples.astype(int))))
    algorithm.on_gradient(replica, share)
    if not algorithm.owns_step:
        replica.step()
    algorithm.on_parameters(replica)


def _resumed(
    comm: Communicator, run: Run, settings: dict, replica: Replica, algorithm: Algorithm
) -> tuple[Replica, Algorithm]:
    """Return a new replica and a new algorithm with the same state."""
    tensors = {name: tensor.clone() for name, tensor in {**replica.state(), **algorithm.state()}.items()}
    again, fresh = _new(comm, run, settings)
    fresh.start(again)
    again.load_state(tensors)
    fresh.load_state(tensors)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in fresh.state().items())
    return again, fresh


def _record(comm: Communicator, replica: Replica) -> list[list]:
    """Return a list to which each message and step of this rank is appended."""
    events: list[list] = []
    send, receive, step = comm.send, comm.receive, replica.step

    def recorded_send(vector, to, tag=0, purpose="parameters"):
        events.append(["send", to, tag, vector.tolist()])
        send(vector, to, tag, purpose)

    def recorded_receive(vector, source, tag=0):
        receive(vector, source, tag)
        events.append(["receive", source, tag])

    def recorded_step():
        events.append(["step"])
        step()

    comm.send, comm.receive, replica.step = recorded_send, recorded_receive, recorded_step
    return events
