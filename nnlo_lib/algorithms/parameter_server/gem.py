"""Gradient energy matching: workers scale their updates so that the center moves like SGD with momentum."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare
from nnlo_lib.algorithms.parameter_server.center_variable import CenterVariableServer
from nnlo_lib.algorithms.parameter_server.client import FETCH, PUSH
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback

# Of the authors' code; keeps the scale finite where a worker's update is zero.
EPSILON = 1e-12


class GEM(CenterVariableServer):
    """Scale each value of an update so that the center's energy matches a proxy, SGD with momentum.

        u_i = change by the local optimizer since the last exchange (-eta g_i for SGD),    m_i <- mu m_i + u_i
        fetch c;    pi = (kappa |m_i| - |c - c'|) / (|u_i| + epsilon), within 0 .. `largest_scale`;    c' <- c
        push pi u_i;    theta_i <- c + pi u_i;    server: c <- c + pi u_i

    c' is the center that this worker fetched last, at first the initial parameters; all products are value by
    value. Hermans and Louppe, Gradient Energy Matching for Distributed Asynchronous Gradient Descent, 2018,
    arXiv:1805.08469; checked against the authors' code
    (github.com/montefiore-institute/gradient-energy-matching), not against the paper's equations. That code
    also bounds pi by 5 and has epsilon = 1e-12, but as |u_i + epsilon|. Its server handles a fetch and the
    following push at once; here other workers may push in between, which `staleness` counts. The local
    optimizer should have no momentum of its own. Invariant: the change of the center is the sum of the pushed
    updates. Bytes per worker and exchange: 4 P each way. `compression` applies to pi u_i: one compressed
    vector up, 4 P down; the center lags by the residual that is still to be sent.
    """

    def __init__(
        self,
        comm: Communicator,
        sync_every: int = 1,
        momentum: float = 0.0,
        kappa: float = 1.0,
        largest_scale: float = 5.0,
        masters: int = 1,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        super().__init__(comm, False, sync_every, masters, feedback)
        self.momentum, self.kappa, self.largest_scale = momentum, kappa, largest_scale
        self._batches = 0
        self._proxy = self._stale = self._exchange_origin = torch.empty(
            0
        )  # m, c', and theta after the last exchange

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._proxy = torch.zeros_like(replica.theta)
        self._stale, self._exchange_origin = replica.theta.clone(), replica.theta.clone()

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._batches += share.count > 0

    def on_parameters(self, replica: ReplicaView) -> None:
        if self._batches == self.sync_every:
            self._exchange(replica)

    def quiesce(self, replica: ReplicaView) -> None:
        if self._batches:
            self._exchange(replica)
        super().quiesce(replica)

    def _exchange(self, replica: ReplicaView) -> None:
        u = replica.theta - self._exchange_origin
        self._proxy.mul_(self.momentum).add_(u)
        self.client.request(FETCH, replica.theta[:0], replica.theta)
        # The scale depends on the fetched center: unlike Downpour, a worker must wait here.
        self.client.wait()
        u.mul_(self._scale(u, replica.theta))
        self.client.request(PUSH, u, u[:0])
        self._stale.copy_(replica.theta)
        torch.add(replica.theta, u, out=self._exchange_origin)
        replica.theta.copy_(self._exchange_origin)
        self._ledger.add_(u)
        self._batches = 0

    def _scale(self, u: Tensor, center: Tensor) -> Tensor:
        """pi = (kappa |m| - |c - c'|) / (|u| + epsilon), within 0 .. largest_scale."""
        energy = self._proxy.abs().mul_(self.kappa).sub_(torch.sub(center, self._stale).abs_())
        return energy.div_(u.abs().add_(EPSILON)).clamp_(0, self.largest_scale)

    def update(self, replica: ReplicaView, number: int) -> Tensor:
        """c <- c + sum of pi u."""
        replica.theta.add_(replica.grad)
        return self.answer_to_push(replica)

    def answer_to_push(self, replica: ReplicaView) -> Tensor:
        return replica.theta[:0]

    def state(self) -> dict[str, Tensor]:
        return super().state() | {
            "gem.proxy": self._proxy,
            "gem.stale": self._stale,
            "gem.from": self._exchange_origin,
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._proxy, self._stale = tensors["gem.proxy"].clone(), tensors["gem.stale"].clone()
        self._exchange_origin = tensors["gem.from"].clone()
