"""DiLoCo: local steps by an inner optimizer; their mean change is the gradient of an outer optimizer."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView
from nnlo_lib.algorithms.collective.periodic import PeriodicSync
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.compressed_allreduce import compressed_allreduce
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback
from nnlo_lib.comm.compression.identity import Identity
from nnlo_lib.config.collective import DiLoCoConfig


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
