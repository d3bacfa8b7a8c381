"""Prox-PDA: proximal primal-dual on a graph."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Model, Share, relative_error
from nnlo_lib.algorithms.neighbour import NeighbourAlgorithm
from nnlo_lib.algorithms.neighbourhood import Neighbourhood


class ProxPDA(NeighbourAlgorithm):
    """Minimise the linearised augmented Lagrangian exactly, then raise the price of disagreement.

        p_i <- p_i + beta sum_j (theta_i - theta_j);    theta_i <- (1 / 2 d_i) sum_j (theta_i + theta_j) - (g_i + p_i) / (2 beta d_i)

    Hong, Hajinezhad and Zhao, Prox-PDA, ICML 2017, with B'B the signless Laplacian, whose penalty matrix is 2 D.
    The local optimizer is not used. Invariant: the duals p_i sum to zero. Bytes per node and step: 4 P to each
    neighbour.
    """

    owns_step = True

    def __init__(self, around: Neighbourhood, beta: float) -> None:
        super().__init__(around)
        self.beta = beta

    def start(self, replica: Model) -> None:
        super().start(replica)
        self._dual = torch.zeros_like(replica.theta)

    def on_gradient(self, replica: Model, share: Share) -> None:
        degree = self.around.degree
        disagreement = self.around.meet(replica.theta).disagreement()
        self._dual.add_(disagreement, alpha=self.beta)
        replica.theta.sub_(disagreement, alpha=1 / (2 * degree))
        replica.theta.sub_(replica.grad + self._dual, alpha=1 / (2 * self.beta * degree))

    def telemetry(self, replica: Model) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._dual, self._dual)}

    def tensors(self) -> dict[str, Tensor]:
        return {"dual": self._dual}
