"""Downpour SGD, `downpour`: a server holds the parameters, workers push gradients and fetch parameters."""

from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.algorithms.server import ParameterServer
from nnlo_lib.algorithms.server_client import PUSH
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import ErrorFeedback
from nnlo_lib.config.algorithm import DownpourConfig


class Downpour(ParameterServer):
    """A server applies each worker's accrued gradient on arrival and answers with its parameters.

        worker i:  a_i = sum of its gradients since the last exchange, computed at locally stepped parameters
        server:    theta <- optimizer(theta, a_i);   worker i: theta_i <- theta

    Dean et al., Large Scale Distributed Deep Networks, 2012, algorithm 1 with n_push = n_fetch = sync_every. With
    `synchronous`, each gradient is weighted by its worker's share of the step's samples; the server waits for all
    workers that still have data and applies the sum of their a_i.

    Invariant: every push is applied exactly once; the root's number of updates equals the number of pushes
    (asynchronous, without relays) or of rounds (synchronous). Bytes per worker and exchange: 4 P each way; a relay adds
    as much for each exchange with its server. `compression` applies to the pushes of workers and relays: one compressed
    vector up, 4 P down.
    """

    def __init__(
        self,
        comm: Communicator,
        synchronous: bool = False,
        sync_every: int = 1,
        masters: int = 1,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        super().__init__(comm, synchronous, sync_every, masters, feedback)
        self.owns_step = sync_every == 1  # a local step would be overwritten at once
        self._batches = 0
        self._accrued: Tensor | None = None

    @classmethod
    def from_config(cls, config: DownpourConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm; the server's optimizer belongs to its replica."""
        return cls(
            context.comm, config.synchronous, config.sync_every, config.masters, context.error_feedback
        )

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        # A synchronous server does not wait for long: workers without more batches disconnect in `quiesce`.
        if not share.count:
            return
        self._batches += 1
        weight = share.count / share.global_count if self.synchronous else 1.0
        if self.sync_every == 1:
            # Without a copy, because it is sent before the next backward pass overwrites the gradient.
            self._accrued = replica.grad.mul_(weight)
        elif self._accrued is None:
            self._accrued = replica.grad * weight
        else:
            self._accrued.add_(replica.grad, alpha=weight)
        if self._batches == self.sync_every:
            self._push(replica)

    def on_parameters(self, replica: ReplicaView) -> None:
        # Not already in `on_gradient`: the trainer loads the next batch while the answer is on its way.
        self.client.wait()

    def quiesce(self, replica: ReplicaView) -> None:
        if self._batches:
            self._push(replica)
        super().quiesce(replica)

    def _push(self, replica: ReplicaView) -> None:
        """Send the accrued gradient; the answer overwrites theta by the server's parameters."""
        assert self._accrued is not None
        self.client.request(PUSH, self._accrued, replica.theta)
        self._accrued, self._batches = None, 0

    def update(self, replica: ReplicaView, number: int) -> Tensor:
        replica.step()
        return replica.theta
