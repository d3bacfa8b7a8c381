"""Distributed stochastic gradient tracking."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Model, Share, relative_error
from nnlo_lib.algorithms.neighbour import NeighbourAlgorithm


class DSGT(NeighbourAlgorithm):
    """Step along y, which tracks the mean gradient; average both with the neighbours.

        y_i <- sum_j w_ij y_j + g_i - g_i^previous  (first: g_i);    theta_i <- sum_j w_ij optimizer(theta_j, y_j)

    Pu and Nedic, Distributed Stochastic Gradient Tracking Methods, 2021, arXiv:1805.11454, equations (2)-(3).
    Invariant: the mean of the y_i is the mean of the g_i. Bytes per node and step: 8 P to each neighbour, one message.
    """

    def start(self, replica: Model) -> None:
        super().start(replica)
        self._tracker, self._gradient = torch.zeros_like(replica.theta), torch.zeros_like(replica.theta)
        self.around.begin(torch.cat([replica.theta, self._tracker]))

    def on_gradient(self, replica: Model, share: Share) -> None:
        self._tracker.add_(replica.grad).sub_(self._gradient)
        self._gradient.copy_(replica.grad)
        replica.grad.copy_(self._tracker)

    def on_parameters(self, replica: Model) -> None:
        both = torch.cat([replica.theta, self._tracker])
        theta, tracker = both.add_(self.around.meet(both).drift()).chunk(2)
        replica.theta.copy_(theta)
        self._tracker.copy_(tracker)

    def telemetry(self, replica: Model) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._tracker - self._gradient, self._gradient)}

    def tensors(self) -> dict[str, Tensor]:
        return {"tracker": self._tracker, "gradient": self._gradient}
