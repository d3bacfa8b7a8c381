"""Common base of LARS and LAMB: a trust ratio for each layer of a flat vector."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.train.optimizers.parameter_layout import Layout


class LayerwiseOptimizer(torch.optim.Optimizer):
    """Updates one flat parameter by steps that are scaled for each layer.

    Layers are the parameters that are scaled and decayed: only the parameters with two or more dimensions if
    `exclude_vectors`, else all. Element-wise work is one operation on the whole vector; norms and scaling are
    one call for all layers.

    Args:
        parameters: the flat parameter, as a list.
        layout: positions of the model's parameters in the flat one.
        exclude_vectors: whether 1-d parameters (biases, normalization) are neither scaled nor decayed.
        options: learning rate and other options of the rule.
    """

    def __init__(
        self, parameters: list[nn.Parameter], layout: Layout, exclude_vectors: bool, **options: Any
    ) -> None:
        super().__init__(parameters, options)
        (self._parameter,) = parameters
        theta = self._parameter.detach()
        self._update = torch.empty_like(theta)
        layers = [slot for slot in layout if len(slot.shape) > 1 or not exclude_vectors]
        self._theta_of = [theta[slot.start : slot.stop] for slot in layers]
        self._update_of = [self._update[slot.start : slot.stop] for slot in layers]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameter with its gradient."""
        gradient = self._parameter.grad
        if gradient is not None:
            self._move(self._parameter, gradient, self.state[self._parameter], self.param_groups[0])

    @abstractmethod
    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        """Update the parameters and the optimizer's state in place.

        Args:
            theta: flat parameter, (parameters,).
            gradient: its gradient, (parameters,).
            state: optimizer state by name; empty before the first step.
            options: options of the rule, with the current `lr`.
        """

    def _decay(self, weight_decay: float) -> None:
        """Add weight_decay times the layers' parameters to their updates."""
        if weight_decay and self._theta_of:
            torch._foreach_add_(self._update_of, self._theta_of, alpha=weight_decay)

    def _norms(self) -> tuple[Tensor, Tensor]:
        """Return the norms of the layers' parameters and of their updates, (layers,) each."""
        return _norms(self._theta_of), _norms(self._update_of)

    def _scale(self, ratios: Tensor, norms: tuple[Tensor, Tensor]) -> None:
        """Multiply each layer's update by its ratio, unless one of the norms is 0."""
        of_theta, of_update = norms
        # Layers that start at zero could never leave it with a ratio of 0; 0 / 0 would be NaN.
        trust = torch.where((of_theta > 0) & (of_update > 0), ratios, 1.0)
        if self._update_of:
            torch._foreach_mul_(self._update_of, list(trust.unbind()))


def _norms(vectors: list[Tensor]) -> Tensor:
    return torch.stack(list(torch._foreach_norm(vectors))) if vectors else torch.empty(0)
