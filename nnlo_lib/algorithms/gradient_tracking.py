"""Gradient tracking: `dsgt` and `next`, in which each node tracks the mean gradient of all nodes."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.dsgd import DecentralizedAlgorithm
from nnlo_lib.algorithms.neighbor_exchange import NeighborExchange


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


class DSGT(GradientTracking):
    """Step along y, a tracker of the mean gradient; average parameters and tracker with the neighbors.

        y_i <- sum_j w_ij y_j + g_i - g_i^previous  (first: g_i);    theta_i <- sum_j w_ij optimizer(theta_j, y_j)

    Pu and Nedic, Distributed Stochastic Gradient Tracking Methods, 2021, arXiv:1805.11454, equations (2)-(3).
    With `momentum_tracking` b, the momenta u_i <- b u_i + g_i take the place of the g_i: Takezawa et al., Momentum
    Tracking, 2022, arXiv:2209.15505, algorithm 1.
    Invariant: the mean of the y_i is the mean of the g_i, relative to the largest g_i so far. Bytes per node
    and step: 8 P to each neighbor, in one message.
    """

    def __init__(self, around: NeighborExchange, momentum_tracking: float = 0.0) -> None:
        super().__init__(around)
        self._beta = momentum_tracking

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        if self._beta:
            # What was tracked last is the momentum, so that it needs no state of its own.
            replica.grad.add_(self._gradient, alpha=self._beta)
        self.track(replica.grad)
        replica.grad.copy_(self._tracker)

    def on_parameters(self, replica: ReplicaView) -> None:
        self.mix(replica, replica.theta)


class NEXT(GradientTracking):
    """Move part of the way to the minimum of a surrogate of the objective, then average with the neighbors.

        y_i <- sum_j w_ij y_j + g_i - g_i^previous  (first: g_i; g_i at x_i, the round's start)
        x~_i = B optimizer steps from x_i on l_i(x) + tau/2 |x - x_i|^2 + <y_i - g_i, x - x_i>
        theta_i <- sum_j w_ij (x_j + a (x~_j - x_j));    a <- a (1 - mu a)

    Di Lorenzo and Scutari, NEXT, 2016, arXiv:1602.00591, algorithm 1, for the mean instead of the sum of the
    losses. With one SGD step and tau = 0 it is gradient tracking. Invariant: the mean of the y_i is the mean
    of the g_i, relative to the largest g_i so far. Bytes per node and round: 8 P to each neighbor, in one
    message.
    """

    def __init__(
        self, around: NeighborExchange, inner_steps: int, tau: float, step: float, step_decay: float
    ) -> None:
        super().__init__(around)
        self.steps_per_round, self.tau, self.step_decay = inner_steps, tau, step_decay
        self._size = torch.tensor([step], dtype=torch.float64)
        self._inner = torch.zeros(1, dtype=torch.int64)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._origin = torch.zeros_like(replica.theta)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        if self._inner == 0:
            # Before the terms of the surrogate are added: the tracker follows the gradient of the loss.
            self.track(replica.grad)
            self._origin.copy_(replica.theta)
        replica.grad.add_(self._tracker).sub_(self._gradient)
        replica.grad.add_(replica.theta - self._origin, alpha=self.tau)

    def on_parameters(self, replica: ReplicaView) -> None:
        self._inner.add_(1).remainder_(self.steps_per_round)
        if self._inner == 0:
            size = float(self._size)
            self.mix(replica, self._origin.lerp(replica.theta, size))
            self._size.mul_(1 - self.step_decay * size)

    def state_tensors(self) -> dict[str, Tensor]:
        return {**super().state_tensors(), "origin": self._origin, "size": self._size, "inner": self._inner}
