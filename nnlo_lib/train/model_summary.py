"""Layers of a model: shapes, parameters, FLOPs of a pass and of training.

Floating-point operations of training on one sample, counted in the steps of the problem.

Table of a model's layers: shapes, parameters and floating-point operations.

Summary of a model: its layers and the floating-point operations of one sample.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from nnlo_lib.models.layer_table_text import layer_table_text
from nnlo_lib.models.zoo.gan import callable_on_samples
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


LayerRow = dict[str, Any]
SETTINGS = ("kernel_size", "stride", "padding", "dilation", "groups", "p", "hidden_size", "num_heads")
VALUES = (int, float, str, tuple)
WORDS = {"kernel_size": "kernel", "p": "rate"}
PLAIN = {"dilation": "1", "groups": "1"}  # default values, which the table omits


def layer_table(module: nn.Module, inputs: Sequence[Tensor]) -> list[LayerRow]:
    """Return a row for each layer that has its own parameters or no inner layers, in order of first use.

    Args:
        module: the model.
        inputs: mini-batches of one sample, one per input of the model.

    Returns:
        Rows with the keys
        name, type;
        shape: of the output for one sample; a list of shapes if the layer has several outputs;
        weights: shapes of the parameters with two or more dimensions;
        parameters: number of parameters; shared parameters count in the first layer that uses them;
        bytes: size of the parameters;
        settings: text;
        flops: of a forward pass of one sample, without inner layers; a multiply-add counts as two.
        shape and flops are None if the model cannot be called with `inputs`, or the layer is not called.
    """
    module = callable_on_samples(module)
    rows = _Rows(module)
    with _evaluating(module), torch.no_grad():
        for device in _devices(module):
            # Some models cannot run on meta tensors, for example because they read values. A model that
            # cannot be called must not prevent its training.
            with suppress(Exception), rows.watching(), rows.counter:
                _forward(module, inputs, device)
                break
    return rows.all()


def model_flops(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[int | None, int | None]:
    """Return the floating-point operations of (forward pass, backward pass) for one sample.

    torch's counter includes matrix products, convolutions and attention. Both are None if the model cannot be
    called.
    """
    module = callable_on_samples(module)
    with _evaluating(module), torch.enable_grad():
        for device in _devices(module):
            with (
                suppress(Exception),
                FlopCounterMode(display=False, custom_mapping=CORRECTED_FORMULAS) as counter,
            ):
                outputs, weights = _forward(module, inputs, device)
                forward: int = counter.get_total_flops()
                sums = [output.sum() for output in _tensors(outputs) if output.requires_grad]
                # Layers of Keras have no gradients on meta tensors.
                if weights and not sums and device.type == "meta":
                    continue
                torch.autograd.grad(sums, weights, allow_unused=True)
                return forward, counter.get_total_flops() - forward
    return None, None


class _Rows:
    """Rows of the table, added by forward hooks when layers are called."""

    def __init__(self, module: nn.Module) -> None:
        self._weights = {
            name: list(layer.parameters(recurse=False)) for name, layer in module.named_modules()
        }
        self._layers = {
            name: layer
            for name, layer in module.named_modules()
            if self._weights[name] or not list(layer.children())
        }
        self._start()

    def _start(self) -> None:
        self._rows: dict[str, LayerRow] = {}
        self.counter = FlopCounterMode(display=False, custom_mapping=CORRECTED_FORMULAS)
        self._counted: set[int] = set()
        # For each running layer: the flop count at its start, and the flops of its inner layers.
        self._open: list[list[int]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Add a row for each layer called inside the context; discard all rows if a call fails."""
        hooks = []
        for name, layer in self._layers.items():
            hooks.append(layer.register_forward_pre_hook(self._begin))
            hooks.append(layer.register_forward_hook(partial(self._end, name)))
        try:
            yield
        except Exception:
            self._start()
            raise
        finally:
            for hook in hooks:
                hook.remove()

    def _begin(self, *_: object) -> None:
        self._open.append([self.counter.get_total_flops(), 0])

    def _end(self, name: str, _layer: nn.Module, _inputs: object, output: object) -> None:
        start, inside = self._open.pop()
        whole = self.counter.get_total_flops() - start
        if self._open:
            # The row of a layer excludes its inner layers, so that the column adds up to the whole model.
            self._open[-1][1] += whole
        flops = whole - inside
        shapes = [list(tensor.shape[1:]) for tensor in _tensors(output)]
        if name in self._rows:
            self._rows[name]["flops"] += flops
        else:
            self._rows[name] = self._row(name, shapes[0] if len(shapes) == 1 else shapes, flops)

    def _row(self, name: str, shape: list[Any] | None, flops: int | None) -> LayerRow:
        own = [weight for weight in self._weights[name] if id(weight) not in self._counted]
        self._counted.update(map(id, own))
        return {
            "name": name, "type": type(self._layers[name]).__name__, "shape": shape,
            "weights": [list(weight.shape) for weight in self._weights[name] if weight.dim() > 1],
            "parameters": sum(weight.numel() for weight in own), "bytes": sum(weight.nbytes for weight in own),
            "settings": _settings(self._layers[name]), "flops": flops,
        }  # fmt: skip

    def all(self) -> list[LayerRow]:
        """Return all rows; uncalled layers come last, if they have parameters or no layer was called."""
        called = bool(self._rows)
        for name in self._layers:
            if name not in self._rows and (self._weights[name] or not called):
                self._rows[name] = self._row(name, None, None)
        return list(self._rows.values())


def _devices(module: nn.Module) -> list[torch.device]:
    """Return the devices to try: meta, which computes nothing, then the device of the model."""
    return [torch.device("meta"), next(module.parameters()).device]


def _forward(
    module: nn.Module, inputs: Sequence[Tensor], device: torch.device
) -> tuple[object, list[Tensor]]:
    """Call the model without changing its tensors; return its output and substitutes of its weights.

    Args:
        module: the model.
        inputs: mini-batches of one sample, one per input of the model.
        device: device of the call, for example `meta`.
    """
    weights = {name: _alike(weight, device) for name, weight in module.named_parameters()}
    # Copies, because a layer may update its buffers even in evaluation mode.
    buffers = {name: buffer.to(device, copy=True) for name, buffer in module.named_buffers()}
    output = functional_call(module, weights | buffers, tuple(tensor.to(device) for tensor in inputs))
    return output, [weight for weight in weights.values() if weight.requires_grad]


def _alike(weight: Tensor, device: torch.device) -> Tensor:
    return weight.detach().to(device).requires_grad_(weight.requires_grad)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode; restore the mode of each layer on exit."""
    before = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for layer, training in before:
            layer.training = training


def _tensors(output: object) -> list[Tensor]:
    """Return all tensors in a layer's output, which may nest tuples, lists and dicts."""
    if isinstance(output, Tensor):
        return [output]
    inside = (
        output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
    )
    return [tensor for part in inside for tensor in _tensors(part)]


def _settings(layer: nn.Module) -> str:
    """Return, as text, the attributes of a layer that are in SETTINGS, without the defaults in PLAIN."""
    values = {
        name: getattr(layer, name) for name in SETTINGS if isinstance(getattr(layer, name, None), VALUES)
    }
    return ", ".join(
        f"{WORDS.get(name, name)}={_short(value)}"
        for name, value in values.items()
        if _short(value) != PLAIN.get(name)
    )


def _short(value: Any) -> str:
    """Return a value as text: (2, 2) as 2, (2, 3) as 2x3."""
    if isinstance(value, tuple):
        return str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
    return str(value)


@dataclass(frozen=True)
class ModelSummary:
    """Layers of a model and `flops`, the operations of (forward, backward) of one sample, None if unknown."""

    layers: list[LayerRow]
    flops: tuple[int | None, int | None]

    @property
    def text(self) -> str:
        """The summary as a text table."""
        return layer_table_text(self.layers, self.flops)

    @property
    def as_dict(self) -> dict[str, Any]:
        """The summary as summary.json contains it."""
        forward, backward = self.flops
        return {"flops": {"forward": forward, "backward": backward}, "layers": self.layers}


def summarize_model(module: nn.Module, inputs: Sequence[Tensor]) -> ModelSummary:
    """Return the summary of a model (of a GAN: both networks); `inputs`: mini-batches of one sample."""
    # A GAN has no forward pass of its own; generator and critic together use all of its layers.
    if {"generator", "critic"} <= dict(module.named_children()).keys():
        noise = torch.zeros(1, int(module.latent), dtype=inputs[0].dtype, device=inputs[0].device)  # type: ignore[arg-type]
        module, inputs = _GeneratorAndCritic(module.generator, module.critic), (noise,)  # type: ignore[arg-type]
    return ModelSummary(layer_table(module, inputs), model_flops(module, inputs))


class _GeneratorAndCritic(nn.Module):
    """A generator followed by the critic that scores its samples."""

    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, noise: Tensor) -> Any:
        return self.critic(self.generator(noise))
