"""A list of tensors as one flat vector, which algorithms exchange."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nnlo_lib.core.errors import UserError


class ParameterView:
    """Parameters of a model that takes its own steps, as an algorithm sees them.

    The tensors become views into `theta`, so that steps of the model and exchanges change the same memory.

    Args:
        tensors: parameters of the model.

    Attributes:
        theta: all parameters, (parameters,).
        grad: memory for algorithms, (parameters,).
        buffers: empty, because a model exchanges all that it lists.

    Raises:
        UserError: if the tensors have several types or devices, or a type other than floating point.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.theta = flat_view(tensors)
        self.grad = torch.zeros_like(self.theta)
        self.buffers = self.theta.new_empty(0)

    def step(self) -> None:
        """Refuse: the model has taken its step."""
        raise TypeError("a model with its own iterations has no optimizer")

    def reset_optimizer(self) -> None:
        """Refuse: the state of the model's optimizer is unknown."""
        raise TypeError("a model with its own iterations has no optimizer")

    def on_gradient_ready(self, ready: Callable[[int], None]) -> None:
        """Never call `ready`: the gradients stay in the model."""


def flat_view(tensors: Sequence[Tensor]) -> Tensor:
    """Return a vector with the values of the tensors, which become views into it.

    Raises UserError if the tensors have several types or devices, or a type other than floating point.
    """
    kinds = sorted({f"{each.dtype} on {each.device}" for each in tensors})
    if len(kinds) > 1 or not tensors[0].is_floating_point():
        raise UserError(f"params: tensors are {', '.join(kinds)}; use one floating-point type and one device")
    vector = torch.cat([each.detach().reshape(-1) for each in tensors])
    start = 0
    for each in tensors:
        each.data = vector[start : start + each.numel()].view(each.shape)
        start += each.numel()
    return vector
