"""RMSprop and Adam with epsilon inside the root, as in PyDTNN."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class InsideRoot(torch.optim.Optimizer, ABC):
    """Element-wise optimizer: w <- w - lr step(g), with decay w added to g. A subclass has the step and its state."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    decayed = parameter.grad.add(parameter, alpha=group["weight_decay"])
                    parameter.sub_(self._step(decayed, self.state[parameter], group), alpha=group["lr"])

    @abstractmethod
    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        """Return the step, update `state`."""


class RMSpropInsideRoot(InsideRoot):
    """c <- alpha c + (1 - alpha) g^2;    w <- w - lr g / sqrt(c + eps).

    Args:
        alpha: decay of the squared gradient.
        eps: added to the mean squared gradient.
        weight_decay: L2 penalty.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        *,
        lr: float,
        alpha: float,
        eps: float,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay})

    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        if not state:
            state["square_avg"] = torch.zeros_like(gradient)
        alpha = options["alpha"]
        c = state["square_avg"].mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        root: Tensor = (c + options["eps"]).sqrt_()
        return gradient / root


class AdamInsideRoot(InsideRoot):
    """m^ and v^ as in Adam;    w <- w - lr m^ / sqrt(v^ + eps)."""

    def __init__(
        self,
        parameters: list[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        if not state:
            state |= {name: torch.zeros_like(gradient) for name in ("exp_avg", "exp_avg_sq")}
            state["step"] = torch.tensor(0.0)
        state["step"] += 1
        beta1, beta2 = options["betas"]
        steps = state["step"].item()
        m = state["exp_avg"].lerp_(gradient, 1 - beta1)
        v = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (v / (1 - beta2**steps) + options["eps"]).sqrt_()
        moved: Tensor = m / (1 - beta1**steps) / root
        return moved
