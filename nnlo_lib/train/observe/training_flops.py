"""Floating-point operations of training on one sample, counted in the steps of the problem."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from nnlo_lib.problems.base import Problem


def convolution_backward_flops(
    grad_out_shape: list[int],
    x_shape: list[int],
    w_shape: list[int],
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,
    _output_padding: Any,
    _groups: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> int:
    """Return the operations of the gradients of a convolution.

    Each gradient, that of the input and that of the weights, has the products of the forward pass. torch's own
    formula multiplies those of the weights by the number of groups.

    Args:
        grad_out_shape: shape of the gradient of the output.
        x_shape: shape of the input.
        w_shape: shape of the weights; its second side is the channels of one group.
        transposed: whether the convolution is transposed.
        output_mask: whether the gradients of input and weights are computed.
    """
    return sum(output_mask[:2]) * conv_flop_count(x_shape, w_shape, grad_out_shape, transposed)


CORRECTED_FORMULAS = {torch.ops.aten.convolution_backward: convolution_backward_flops}


def training_flops(
    module: nn.Module, problem: Problem, inputs: Sequence[Tensor], targets: Tensor, cycle: int = 1
) -> float | None:
    """Return the operations of the passes of one training step per sample, mean over `cycle` steps.

    The counter includes matrix products, convolutions and attention; optimizer and metrics are not
    included. The result is None if the steps cannot be computed.

    Args:
        module: the trained model; not changed.
        problem: problem that computes the loss.
        inputs: inputs of a mini-batch, each (samples, ...).
        targets: its labels, (samples, ...).
        cycle: number of steps after which the kinds of steps repeat, such as `cycle` of a GAN.
    """
    step = _Step(module, problem)
    # Meta tensors compute nothing, but some models and problems cannot use them.
    for device in (torch.device("meta"), next(module.parameters()).device):
        batch = tuple(tensor.to(device) for tensor in inputs), targets.to(device)
        counter = FlopCounterMode(display=False, custom_mapping=CORRECTED_FORMULAS)
        # Sorted by layer, as by default, torch refuses losses that contain a gradient, such as a gradient penalty.
        counter.mod_tracker = _WholeModel()  # type: ignore[assignment]
        with suppress(Exception), _training(module), counter:
            for number in range(cycle):
                _differentiate(step, device, *batch, number)
            return float(counter.get_total_flops() / cycle / len(targets))
    return None


class _WholeModel(nullcontext[None]):
    """Stand-in for torch's ModuleTracker; all operations belong to one part of the model."""

    parents = frozenset({"Global"})


class _Step(nn.Module):
    """The loss of a model as a module, so that its weights can be replaced in one call."""

    def __init__(self, module: nn.Module, problem: Problem) -> None:
        super().__init__()
        self.module, self._problem = module, problem

    def forward(self, inputs: tuple[Tensor, ...], targets: Tensor, number: int) -> Any:
        return self._problem.compute_loss(self.module, inputs, targets, number).loss


def _differentiate(
    step: _Step, device: torch.device, inputs: tuple[Tensor, ...], targets: Tensor, number: int
) -> None:
    weights = {
        name: weight.detach().to(device, copy=True).requires_grad_(weight.requires_grad)
        for name, weight in step.named_parameters()
    }
    buffers = {name: buffer.to(device, copy=True) for name, buffer in step.named_buffers()}
    loss = functional_call(step, weights | buffers, (inputs, targets, number))
    trained = [weight for weight in weights.values() if weight.requires_grad]
    torch.autograd.grad(loss, trained, allow_unused=True)


@contextmanager
def _training(module: nn.Module) -> Iterator[None]:
    """Set the model to training mode; restore the mode of each layer, and the random streams, on exit.

    Batch normalization, which has no counted operations, stays in evaluation mode: in training mode it may
    wait for the other ranks.
    """
    before = [(layer, layer.training) for layer in module.modules()]
    for layer, _ in before:
        layer.training = not isinstance(layer, _BatchNorm)
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            yield
    finally:
        for layer, training in before:
            layer.training = training
