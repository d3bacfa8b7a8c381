"""What the training loop asks of any way to let replicas agree."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator, Request

Role = Literal["server", "worker"]


class ReplicaView(Protocol):
    """What an algorithm sees of a replica: flat vectors and the local optimizer's step."""

    theta: Tensor
    grad: Tensor
    buffers: Tensor

    def step(self) -> None:
        """Let the local optimizer move theta along grad."""

    def reset_optimizer(self) -> None:
        """Let the local optimizer start afresh, without moments."""

    def on_gradient_ready(self, ready: Callable[[int], None]) -> None:
        """Call `ready(start)` during backward passes, each time that more of the gradient, grad[start:], is final."""


@dataclass(frozen=True)
class SampleShare:
    """This rank's part of a step: its samples, and those of all workers together."""

    count: int
    global_count: int


class Algorithm(ABC):
    """Let replicas agree. One instance per rank; vectors are changed in place.

    Class docstrings give the update rule, the paper, the invariant and the bytes sent per step, for P parameters of
    4 bytes on n ranks.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self._vote: tuple[Tensor, Request] | None = None

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> "Algorithm":
        """Return the rank's part of the algorithm with these settings (a subclass of BaseAlgorithmConfig)."""
        return cls(context.comm)

    owns_step = False  # whether the algorithm steps instead of the local optimizer
    replicas_differ = (
        False  # whether replicas still differ after an epoch: then each is measured, and their mean published
    )
    weight = 1.0  # this rank's part of the mean that is published, where ranks' parts differ
    summed_state: tuple[
        str, ...
    ] = ()  # tensors of the state that count: sums of ranks', where others are their mean
    steps_per_round = 1  # local steps from one agreement to the next, where learning rates change by round

    def start(self, replica: ReplicaView) -> None:
        """Give every rank the parameters and buffers of rank 0."""
        self.comm.broadcast(replica.theta)
        self.comm.broadcast(replica.buffers)

    def on_batch(self, replica: ReplicaView, share: SampleShare) -> None:
        """Act before the gradient is computed; may ask to hear how far the backward pass has come."""

    @abstractmethod
    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        """Act on a fresh local gradient; may replace it."""

    def on_parameters(self, replica: ReplicaView) -> None:
        """Act after the local step; may replace the parameters."""

    def quiesce(self, replica: ReplicaView) -> None:
        """Finish what is under way: after this no message is in flight and a checkpoint holds everything."""
        self._count_votes()

    @abstractmethod
    def before_evaluation(self, replica: ReplicaView) -> None:
        """Give every rank, after a pause, the model to measure: the same one, or its own if `apart`."""

    def after_evaluation(self, replica: ReplicaView) -> None:
        """Take back, after the measurement, what this rank goes on from."""

    def on_finish(self, replica: ReplicaView) -> None:
        """Give every rank, after the last epoch, the one model to publish: the mean of those that are `apart`."""
        if self.replicas_differ:
            self.comm.allreduce(replica.theta.div_(self.comm.size), "parameters")
            mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Return what tells how well the replicas agree, the same on all ranks; all call it after `before_evaluation`.

        `invariant` in it is the relative error of the class's invariant; Training ends the run if it is broken.
        """
        return {}

    def histograms(self) -> dict[str, dict[int, int]]:
        """Return this rank's histograms for the summary, such as staleness of updates to their number."""
        return {}

    def serve(self, replica: ReplicaView, wish: Callable[[], bool]) -> None:
        """Serve until every worker has ended its epoch or stopped; `wish` says whether to stop early."""
        raise TypeError(f"{type(self).__name__} has no servers")

    def should_stop(self, wish: bool) -> bool:
        """Say whether any rank wished to stop by the last step; the same answer on all ranks at the same step.

        The vote travels while the next step computes.
        """
        stop = self._count_votes()
        vote = torch.tensor([int(wish)])
        self._vote = (vote, self.comm.iallreduce(vote, "control"))
        return stop

    def _count_votes(self) -> bool:
        if self._vote is None:
            return False
        (vote, request), self._vote = self._vote, None
        request.wait()
        return bool(vote.item())

    def state(self) -> dict[str, Tensor]:
        """Return the algorithm's own tensors that a resumed run needs."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""


def mean_buffers(comm: Communicator, replica: ReplicaView, workers: int, is_worker: bool) -> None:
    """Average the workers' batch-norm statistics onto every rank."""
    if replica.buffers.numel():
        replica.buffers.mul_(float(is_worker) / workers)
        comm.allreduce(replica.buffers, "buffers")


def relative_error(comm: Communicator, error: Tensor, size: Tensor) -> float:
    """Return |sum over ranks of error| / sum over ranks of |size|, the same on all ranks; 0 / 0 is 0."""
    total = error.clone()
    comm.allreduce(total, "telemetry")
    scale = torch.stack([size.double().norm()])
    comm.allreduce(scale, "telemetry")
    return float(total.double().norm() / scale.clamp(min=1e-30)) if float(total.abs().sum()) else 0.0


def fraction_unequal(comm: Communicator, vector: Tensor) -> float:
    """Return which part of the ranks holds another `vector` than rank 0, bit for bit; the same on all ranks."""
    prints = comm.gather(zlib.crc32(vector.detach().cpu().numpy().tobytes()))
    return float(sum(one != prints[0] for one in prints) / comm.size)
