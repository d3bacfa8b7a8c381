"""Interface between the training loop and the algorithms that synchronize replicas."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator, Request
from nnlo_lib.config.algorithm_base import Capabilities

Role = Literal["server", "worker"]


class ReplicaView(Protocol):
    """The model of this rank as an algorithm sees it, the argument `replica`: flat vectors and the local optimizer.

    The layers of the model are views into the vectors: change them in place (`replica.grad.mul_(2)`). A new tensor
    (`replica.grad = ...`) would not reach the model.
    """

    theta: Tensor  # all trained parameters (P,), float32 by default, on the device of the model
    grad: Tensor  # gradient of the loss, mean over this rank's samples (P,); the next backward pass overwrites it
    buffers: Tensor  # floating-point buffers (B,), such as batch-norm statistics; B may be 0

    def step(self) -> None:
        """Update theta in place from grad by the local optimizer; only for `owns_step`, otherwise NNLO calls it."""

    def reset_optimizer(self) -> None:
        """Discard the local optimizer's state (its moments); its learning rate stays."""

    def on_gradient_ready(self, ready: Callable[[int], None]) -> None:
        """Let each later backward pass call `ready(start)` whenever more of grad, grad[start:], is final; register once."""


@dataclass(frozen=True)
class SampleShare:
    """Numbers of samples in one step, the argument `share`: `count / global_count` weighs this rank's gradient."""

    count: int  # of this rank; may be 0, and grad is then 0
    global_count: int  # of all workers together, the same number on all ranks


class Algorithm(ABC):
    """Base class of the algorithms that synchronize replicas.

    Each rank has one instance, which changes the vectors of its replica in place. Unless the algorithm is asynchronous,
    all ranks make the same steps, even without samples, so that each method may make calls that all ranks make.

    Class docstrings give the update rule, the paper, the invariant and the bytes sent per step, for P
    parameters of 4 bytes on n ranks.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self._vote: tuple[Tensor, Request] | None = None

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> "Algorithm":
        """Return this rank's instance; `config` is the algorithm's subclass of BaseAlgorithmConfig.

        By default, its keys are keyword arguments of the class.
        """
        return cls(context.comm, **config.arguments)

    # Requirements of a user's class; built-in algorithms declare them in their settings, without torch.
    capabilities = Capabilities()

    # True if the algorithm updates theta itself: the training loop then skips the local optimizer's step.
    owns_step = False
    # False if no method reads `replica.grad` after `on_gradient`; simulated ranks then share the memory of gradients.
    keeps_gradient = True
    # True if replicas still differ after an epoch: each is then evaluated, and their mean is published.
    replicas_differ = False
    # Weight of this rank's model in the published mean; it stays 1 if all ranks have equal weights.
    weight = 1.0
    # State tensors that are summed over the old ranks if the number of ranks changes; others are averaged.
    summed_state: tuple[str, ...] = ()
    # True if this rank takes no samples in the coming step: it computes nothing.
    rests = False
    # True if the optimizer of each rank has the moments of the rank's part of the parameters only.
    shards_optimizer = False
    # Local steps between two synchronizations, for learning rates that change from round to round.
    steps_per_round = 1

    def start(self, replica: ReplicaView) -> None:
        """Broadcast the parameters and buffers of rank 0 to all ranks; called once, before the first step or `load_state`."""
        self.comm.broadcast(replica.theta)
        self.comm.broadcast(replica.buffers)

    def on_batch(self, replica: ReplicaView, share: SampleShare) -> None:
        """Prepare for a step before its gradient is computed; may call `replica.on_gradient_ready`."""

    @abstractmethod
    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        """Process a new local gradient, after each backward pass; may overwrite `replica.grad` in place."""

    def on_parameters(self, replica: ReplicaView) -> None:
        """Process the parameters after each local step; may overwrite `replica.theta` in place."""

    def quiesce(self, replica: ReplicaView) -> None:
        """Complete pending communication before a checkpoint, an evaluation and the end: no message is in flight then."""
        self._count_votes()

    @abstractmethod
    def before_evaluation(self, replica: ReplicaView) -> None:
        """Load the model to evaluate into every rank's replica; called after `quiesce`.

        All ranks get the same model, or each rank its own if `replicas_differ`.
        """

    def after_evaluation(self, replica: ReplicaView) -> None:
        """Restore the model from which this rank continues training after the evaluation."""

    def on_finish(self, replica: ReplicaView) -> None:
        """Load the model to publish into every rank's replica after the last epoch.

        It is the mean of the replicas if `replicas_differ`.
        """
        if self.replicas_differ:
            self.comm.allreduce(replica.theta.div_(self.comm.size), "parameters")
            mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Return measures of how well the replicas agree; all ranks call it after `before_evaluation`.

        All ranks return the same values. `invariant` is the relative error of the class's invariant; if it is
        too large, the training ends with an InvariantError.
        """
        return {}

    def histograms(self) -> dict[str, dict[int, int]]:
        """Return this rank's histograms for the summary, for example the number of updates by staleness."""
        return {}

    def serve(self, replica: ReplicaView, requests_stop: Callable[[], bool]) -> None:
        """Answer the workers' requests until every worker has ended its epoch or stopped.

        `requests_stop` returns True if this rank requests an early stop.
        """
        raise TypeError(f"{type(self).__name__} has no servers")

    def should_stop(self, requested: bool) -> bool:
        """Return True if any rank requested a stop in the previous step; all ranks get the same answer.

        `requested` is this rank's request. Its all-reduce runs while the next step computes.
        """
        stop = self._count_votes()
        vote = torch.tensor([int(requested)])
        self._vote = (vote, self.comm.iallreduce(vote, "control"))
        return stop

    def _count_votes(self) -> bool:
        if self._vote is None:
            return False
        (vote, request), self._vote = self._vote, None
        request.wait()
        return bool(vote.item())

    def state(self) -> dict[str, Tensor]:
        """Return the algorithm's tensors, of any shape, that a resumed run needs; called at checkpoints, after `quiesce`."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned, on the model's device; called after `start` if a run resumes."""


def mean_buffers(comm: Communicator, replica: ReplicaView, workers: int, is_worker: bool) -> None:
    """Overwrite `replica.buffers` of every rank in place by their mean over the workers; all ranks make this call.

    The statistics of servers (`is_worker` is False) do not count.
    """
    if replica.buffers.numel():
        # Servers add zeros, so that all ranks can take part in one sum.
        replica.buffers.mul_(float(is_worker) / workers)
        comm.allreduce(replica.buffers, "buffers")


def relative_error(comm: Communicator, error: Tensor, size: Tensor) -> float:
    """Return |sum over ranks of error| / sum over ranks of |size|, the same on all ranks; 0 / 0 is 0."""
    total = error.clone()
    comm.allreduce(total, "telemetry")
    scale = torch.stack([size.double().norm()])
    comm.allreduce(scale, "telemetry")
    # A NaN counts as true here and is returned, so that the check of the invariant fails.
    return float(total.double().norm() / scale.clamp(min=1e-30)) if float(total.abs().sum()) else 0.0


def fraction_unequal(comm: Communicator, vector: Tensor) -> float:
    """Return, on all ranks, the fraction of ranks with a `vector` that differs from rank 0's in any bit."""
    # Checksums keep the gather small; two different vectors have the same one with probability 2^-32.
    prints = comm.gather(zlib.crc32(vector.detach().cpu().numpy().tobytes()))
    return float(sum(one != prints[0] for one in prints) / comm.size)
