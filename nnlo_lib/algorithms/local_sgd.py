"""Local SGD: `average` and `diloco` synchronize every few local steps, `individual` never."""

from abc import abstractmethod

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, fraction_unequal, mean_buffers
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import ErrorFeedback, Identity, compressed_allreduce
from nnlo_lib.config.algorithm import AverageConfig, DiLoCoConfig


class PeriodicSync(Algorithm):
    """Take `sync_every` local steps, then `synchronize`; every evaluation also synchronizes first."""

    def __init__(self, comm: Communicator, sync_every: int) -> None:
        super().__init__(comm)
        self.sync_every = sync_every
        self._steps_since_sync = 0  # the same on all ranks

    @abstractmethod
    def synchronize(self, replica: ReplicaView) -> None:
        """Make all replicas' parameters equal."""

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_parameters(self, replica: ReplicaView) -> None:
        self._steps_since_sync += 1
        if self._steps_since_sync == self.sync_every:
            self._synchronize_and_reset(replica)

    def before_evaluation(self, replica: ReplicaView) -> None:
        if self._steps_since_sync:
            self._synchronize_and_reset(replica)
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": fraction_unequal(self.comm, replica.theta)}

    def _synchronize_and_reset(self, replica: ReplicaView) -> None:
        self.synchronize(replica)
        self._steps_since_sync = 0

    def state(self) -> dict[str, Tensor]:
        # Names of state tensors are part of the checkpoint format: older spellings stay.
        return {"periodic.apart": torch.tensor([self._steps_since_sync])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._steps_since_sync = int(tensors["periodic.apart"])


class Average(PeriodicSync):
    """Average the parameters every H = `sync_every` steps.

        theta_i <- optimizer(theta_i, g_i), H times;    theta_i <- (1/n) sum_j theta_j

    Stich, Local SGD Converges Fast and Communicates Little, 2019, algorithm 1. Optimizer states stay local. Invariant:
    after each synchronization all replicas are equal. Bytes per rank: an all-reduce of 4 P every H steps.

    With `compression`, ranks send the change since the last synchronization: n - 1 compressed vectors per rank, every H
    steps. They add the compression error to the next change (Basu et al., Qsparse-local-SGD, 2019, algorithm 1).

    With `participation` C below 1 or `proximal` mu, a round is (federated.py; b_i samples of rank i in the round)

        S: m = max(1, C n) ranks;    theta_i <- optimizer(theta_i, g_i + mu (theta_i - theta)), H times, i in S
        theta <- sum_S b_i theta_i / sum_S b_i, batch-norm statistics too;    theta_i <- theta, all i

    McMahan et al., FedAvg, 2017, arXiv:1602.05629, algorithm 1; Li et al., FedProx, 2020, arXiv:1812.06127. Other than there, a
    round counts steps, an evaluation ends it, and all ranks load theta. Bytes per round: m - 1 vectors of 4 P + 4 to the
    first participant, which sends the sum to the n - 1 others; an all-reduce if m = n.
    """

    @classmethod
    def from_config(cls, config: AverageConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm; if the compression is lossy, the variant that averages changes."""
        if context.compressor.lossless:
            return cls(context.comm, config.sync_every)
        # DiLoCo averages changes; an outer learning rate of 1 without momentum adds their mean.
        return CompressedAverage(context.comm, config.sync_every, 1.0, 0.0, context.error_feedback)

    def synchronize(self, replica: ReplicaView) -> None:
        self.comm.allreduce(replica.theta, "parameters")
        replica.theta.div_(self.comm.size)


class DiLoCo(PeriodicSync):
    """Apply an outer SGD with Nesterov momentum to the ranks' mean change in H = `sync_every` local steps.

        theta_i <- optimizer(theta_i, g_i), H times from theta;    d = (1/n) sum_i (theta - theta_i)
        v <- mu v + d;    theta <- theta - lr (d + mu v);    theta_i <- theta

    Douillard et al., DiLoCo, 2023, arXiv:2311.08105, algorithm 1; the momentum has PyTorch's form. With
    lr = 1 and mu = 0 it is local SGD. Invariant: all ranks hold the same theta and v after each
    synchronization. Bytes per rank: an all-reduce of 4 P every H steps.
    """

    def __init__(
        self,
        comm: Communicator,
        sync_every: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        super().__init__(comm, sync_every)
        self._feedback = feedback or ErrorFeedback(Identity(), comm.rank)
        self.outer_lr, self.outer_momentum = outer_lr, outer_momentum
        self._theta = self._velocity = torch.empty(0)

    @classmethod
    def from_config(cls, config: DiLoCoConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm with these settings."""
        return cls(context.comm, **config.arguments, feedback=context.error_feedback)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._theta, self._velocity = replica.theta.clone(), torch.zeros_like(replica.theta)

    def synchronize(self, replica: ReplicaView) -> None:
        change = torch.sub(self._theta, replica.theta)
        if self._feedback.compressor.lossless:
            self.comm.allreduce(change, "parameters")
        else:
            compressed_allreduce(self.comm, self._feedback, change, "parameters")
        change.div_(self.comm.size)
        # All ranks compute the same outer step from the same sum, so that `_theta` needs no further message.
        self._velocity.mul_(self.outer_momentum).add_(change)
        self._theta.sub_(change.add_(self._velocity, alpha=self.outer_momentum), alpha=self.outer_lr)
        replica.theta.copy_(self._theta)

    def state(self) -> dict[str, Tensor]:
        own = {"diloco.theta": self._theta, "diloco.velocity": self._velocity}
        return super().state() | own | self._feedback.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._feedback.load_state(tensors)
        self._theta, self._velocity = tensors["diloco.theta"].clone(), tensors["diloco.velocity"].clone()


class CompressedAverage(DiLoCo):
    """Average compressed changes; error messages name this class, not DiLoCo."""


class Individual(Algorithm):
    """Train every replica alone, from common initial parameters.

        theta_i <- optimizer(theta_i, g_i)

    DiNNO's `individual training`: the baseline that synchronization must beat. Bytes: only the initial
    broadcast.
    """

    replicas_differ = True

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass
