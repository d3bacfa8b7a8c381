"""Prox-PDA: proximal primal-dual on a graph."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.decentralized.base import DecentralizedAlgorithm
from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange


class ProxPDA(DecentralizedAlgorithm):
    """Raise the price of disagreement (the duals), then minimize the linearized augmented Lagrangian exactly.

        p_i <- p_i + beta sum_j (theta_i - theta_j);    theta_i <- (1 / 2 d_i) sum_j (theta_i + theta_j) - (g_i + p_i) / (2 beta d_i)

    Hong, Hajinezhad and Zhao, Prox-PDA, ICML 2017, with B'B the signless Laplacian; the penalty matrix is
    2 D. The local optimizer is not used. Invariant: the duals p_i sum to zero. Bytes per node and step: 4 P
    to each neighbor.
    """

    owns_step = True

    def __init__(self, around: NeighborExchange, beta: float) -> None:
        super().__init__(around)
        self.beta = beta

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._dual = torch.zeros_like(replica.theta)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        # Before the exchange, which ends the round: afterwards, `degree` refers to the next round.
        degree = self.neighbors.degree
        disagreement = self.neighbors.exchange(replica.theta).disagreement()
        self._dual.add_(disagreement, alpha=self.beta)
        # theta_i - sum_j (theta_i - theta_j) / (2 d_i) = (1 / 2 d_i) sum_j (theta_i + theta_j).
        replica.theta.sub_(disagreement, alpha=1 / (2 * degree))
        replica.theta.sub_(replica.grad + self._dual, alpha=1 / (2 * self.beta * degree))

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._dual, self._dual)}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"dual": self._dual}
