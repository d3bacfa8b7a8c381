"""What algorithms share whose nodes track the mean gradient."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, relative_error
from nnlo_lib.algorithms.decentralized.base import DecentralizedAlgorithm


class GradientTracking(DecentralizedAlgorithm):
    """Keep a tracker y_i of the mean gradient, whose mean over the nodes is that of the gradients g_i.

    That holds up to rounding, which is relative to the largest gradient that a node has seen: where training fits
    its data, the gradients fall far below what rounding left of the first ones.
    """

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._tracker, self._gradient = torch.zeros_like(replica.theta), torch.zeros_like(replica.theta)
        self._largest = replica.theta.new_zeros(1)
        self.neighbors.set_initial(torch.cat([replica.theta, self._tracker]))

    def track(self, gradient: Tensor) -> None:
        """Take in a fresh gradient: y_i <- y_i + g_i - g_i^previous."""
        self._tracker.add_(gradient).sub_(self._gradient)
        self._gradient.copy_(gradient)
        self._largest = torch.maximum(self._largest, gradient.norm())

    def mix(self, replica: ReplicaView, theta: Tensor) -> None:
        """Average `theta` and the tracker with the neighbours, the first into the parameters."""
        both = torch.cat([theta, self._tracker])
        theta, tracker = both.add_(self.neighbors.exchange(both).mixing_delta()).chunk(2)
        replica.theta.copy_(theta)
        self._tracker.copy_(tracker)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._tracker - self._gradient, self._largest)}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"tracker": self._tracker, "gradient": self._gradient, "largest": self._largest}
