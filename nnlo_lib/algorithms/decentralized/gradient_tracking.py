"""Base class of the algorithms in which nodes track the mean gradient."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, relative_error
from nnlo_lib.algorithms.decentralized.base import DecentralizedAlgorithm


class GradientTracking(DecentralizedAlgorithm):
    """Base class: every node keeps a tracker y_i; the mean of the y_i equals the mean of the gradients g_i.

    This holds up to rounding errors, which are relative to the largest gradient that a node has seen: if the
    model fits its data, the gradients become much smaller than the rounding errors of the first ones.
    """

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._tracker, self._gradient = torch.zeros_like(replica.theta), torch.zeros_like(replica.theta)
        self._largest = replica.theta.new_zeros(1)
        # Replaces the copies of the base class: theta and tracker travel in one vector.
        self.neighbors.set_initial(torch.cat([replica.theta, self._tracker]))

    def track(self, gradient: Tensor) -> None:
        """Update the tracker by a new gradient: y_i <- y_i + g_i - g_i^previous."""
        self._tracker.add_(gradient).sub_(self._gradient)
        self._gradient.copy_(gradient)
        self._largest = torch.maximum(self._largest, gradient.norm())

    def mix(self, replica: ReplicaView, theta: Tensor) -> None:
        """Average `theta` and the tracker with the neighbors; write the averaged theta to the replica."""
        both = torch.cat([theta, self._tracker])
        theta, tracker = both.add_(self.neighbors.exchange(both).mixing_delta()).chunk(2)
        replica.theta.copy_(theta)
        self._tracker.copy_(tracker)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._tracker - self._gradient, self._largest)}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"tracker": self._tracker, "gradient": self._gradient, "largest": self._largest}
