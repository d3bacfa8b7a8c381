"""Tensors of a network as a replica needs them: real, dense, of known shape; and what a training step may change of them."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from nnlo_lib.core.errors import UserError


def make_dense(module: nn.Module) -> nn.Module:
    """Copy parameters and buffers that are strided or expanded views to memory of their own; return the module.

    The replica and files of weights hold the values one after another. Raises UserError for tensors that cannot be held so.
    """
    for name, tensor in _tensors(module):
        if is_lazy(tensor):
            raise UserError(
                f"{name} of the model has no shape before the first call; give the layer its input size, for example nn.Linear in place of nn.LazyLinear"
            )
        if tensor.is_complex():
            raise UserError(
                f"{name} of the model is complex, which is not supported; keep real and imaginary part as one real tensor "
                "(torch.view_as_real) and use torch.view_as_complex in forward()"
            )
        if tensor.layout is not torch.strided:
            raise UserError(f"{name} of the model is sparse, which is not supported; use a dense tensor")
        if not _is_dense(tensor):
            tensor.data = tensor.data.contiguous()
    _refuse_shared_memory(module)
    return module


class StateGuard:
    """Finds state that a training step changes and that checkpoints do not hold.

    Args:
        module: the network before the step.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._parameters = [name for name, _ in module.named_parameters()]
        self._buffers = dict(module.named_buffers())
        # Values that each attempt, and the evaluation, takes from the code of the model.
        self._fixed = {name: tensor.detach().clone() for name, tensor in self._from_code().items()}
        self._extra = deepcopy(self._extra_states())

    def problem(self) -> str:
        """Return why a resumed training would differ from an undisturbed one, or an empty string."""
        new = [name for name, _ in self._module.named_parameters() if name not in self._parameters]
        if new:
            return f"the parameter {new[0]} appeared in the first call, and would not be trained; create it in __init__()"
        for name, value in self._extra_states().items():
            if not _equal(value, self._extra[name]):
                return (
                    f"a training step changes get_extra_state() of {name or 'the model'}, which checkpoints do not hold; keep "
                    "the value in a buffer (register_buffer)"
                )
        buffers = dict(self._module.named_buffers())
        for name, before in self._buffers.items():
            if buffers.get(name) is not before:
                return f"forward() assigns a new tensor to the buffer {name}; change the buffer in place (self.{name}.copy_(...)), so that checkpoints hold it"
        for name, tensor in self._from_code().items():
            if name in self._fixed and not torch.equal(tensor, self._fixed[name]):
                kind = (
                    "parameter without gradient"
                    if isinstance(tensor, nn.Parameter)
                    else "buffer with persistent=False"
                )
                return f"a training step changes {name}, a {kind}, which checkpoints do not hold; make it a buffer (register_buffer)"
        return ""

    def _extra_states(self) -> dict[str, Any]:
        modules = self._module.named_modules()
        own = nn.Module.get_extra_state
        return {
            name: each.get_extra_state() for name, each in modules if type(each).get_extra_state is not own
        }

    def _from_code(self) -> dict[str, Tensor]:
        """Return the frozen parameters and the buffers that are no part of files of weights."""
        kept = self._module.state_dict(keep_vars=True)
        frozen = {name: each for name, each in self._module.named_parameters() if not each.requires_grad}
        return frozen | {name: each for name, each in self._module.named_buffers() if name not in kept}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    return bool(one == other)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _is_dense(tensor: Tensor) -> bool:
    # The copy keeps the strides of tensors without gaps and without elements in common, channels-last ones included.
    return torch.empty_like(tensor, memory_format=torch.preserve_format).stride() == tensor.stride()


def _refuse_shared_memory(module: nn.Module) -> None:
    """Raise UserError if two parameters share memory: the replica would separate them, and train both."""
    extents = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), name)
        for name, tensor in module.named_parameters()
        if tensor.numel() and tensor.device.type != "meta"
    )
    for (_, end, first), (start, _, second) in pairwise(extents):
        if start < end:
            raise UserError(
                f"the parameters {first} and {second} of the model share memory, but are two; assign one Parameter to both "
                f"(module.{second} = module.{first})"
            )
