"""Nesterov momentum of a worker around any local optimizer, for EASGD with momentum (EAMSGD)."""

import torch
from torch import Tensor


class NesterovMomentum:
    """The velocity v of a worker, whose gradients are computed at theta + delta v.

    Order in a step: `look_ahead`, gradient, `return_back`, any exchange, `begin_step`, step of the local
    optimizer, `end_step`. A step without samples calls none of them.

    Args:
        momentum: delta, the factor of v in a step; 0 switches the class off.

    Attributes:
        velocity: v, (parameters,); empty before `reset`, and if it is switched off.
    """

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self.velocity = self._origin = torch.empty(0)
        self._in_step = False

    def reset(self, theta: Tensor) -> None:
        """Set v to zero."""
        if self._momentum:
            self.velocity = torch.zeros_like(theta)

    def look_ahead(self, theta: Tensor) -> None:
        """theta <- theta + delta v, where the gradient is computed."""
        self._in_step = bool(self._momentum)
        if self._in_step:
            self._origin = theta.clone()
            theta.add_(self.velocity, alpha=self._momentum)

    def return_back(self, theta: Tensor) -> None:
        """Restore theta as before `look_ahead`, bit for bit."""
        if self._in_step:
            theta.copy_(self._origin)

    def begin_step(self, theta: Tensor) -> None:
        """Keep theta, from which the local optimizer makes its step."""
        if self._in_step:
            self._origin.copy_(theta)

    def end_step(self, theta: Tensor) -> None:
        """v <- delta v + (theta's change by the local optimizer); theta <- theta before its step + v."""
        if self._in_step:
            self.velocity.mul_(self._momentum).add_(theta.sub_(self._origin))
            torch.add(self._origin, self.velocity, out=theta)
            self._in_step = False
