"""A model on torch's device `meta` that takes and returns tensors of the CPU."""

from typing import Any

import torch
from torch import Tensor, nn


class MetaModel(nn.Module):
    """Applies a model on `meta`, forward and backward, and returns random outputs of the shapes it would return.

    A loss and metrics can then compute with the values of outputs, which `meta` does not have.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        """Return random outputs of the model's shapes and types."""
        outputs = self.module(*(each.to("meta") for each in inputs))
        if torch.is_grad_enabled():
            for each in _tensors(outputs):
                if each.requires_grad:
                    each.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
        return _like(outputs)


def _tensors(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return list(outputs.values() if isinstance(outputs, dict) else outputs)


def _like(outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        values = torch.rand(outputs.shape, dtype=torch.float32).to(outputs.dtype)
        return values.requires_grad_(outputs.requires_grad)
    if isinstance(outputs, dict):
        return {name: _like(each) for name, each in outputs.items()}
    return tuple(_like(each) for each in outputs)
