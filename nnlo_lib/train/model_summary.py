"""Summary of a model: its layers, and the floating-point operations of a sample in a pass and in training.

torch's counter includes matrix products, convolutions and attention; a multiply-add counts as two.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from nnlo_lib.models.layer_table_text import layer_table_text
from nnlo_lib.models.zoo.gan import callable_on_samples
from nnlo_lib.problems.base import Problem
from nnlo_lib.train.replica.model_build import is_small

LayerRow = dict[str, Any]
# Attributes of layers that the table shows, their values' types, shorter names, and defaults that it omits.
SETTINGS = ("kernel_size", "stride", "padding", "dilation", "groups", "p", "hidden_size", "num_heads")
VALUES = (int, float, str, tuple)
WORDS = {"kernel_size": "kernel", "p": "rate"}
PLAIN = {"dilation": "1", "groups": "1"}
# Parts of the names of CPU kernels that do the matrix products of a whole layer; `meta` has these products one by one.
FUSED_KERNELS = ("rnn", "lstm", "gru", "attention", "transformer")


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
    networks = dict(module.named_children())
    # A GAN has no forward pass of its own; the critic of generated samples uses all of its layers.
    if {"generator", "critic"} <= networks.keys():
        noise = torch.zeros(1, int(module.latent), dtype=inputs[0].dtype, device=inputs[0].device)  # type: ignore[arg-type]
        names = ("generator", "critic")
        module, inputs = nn.Sequential(OrderedDict((name, networks[name]) for name in names)), (noise,)
    return ModelSummary(layer_table(module, inputs), model_flops(module, inputs))


def layer_table(module: nn.Module, inputs: Sequence[Tensor]) -> list[LayerRow]:
    """Return a row for each layer that has its own parameters or no inner layers, in order of first use.

    Args:
        inputs: mini-batches of one sample, one per input of the model.

    Returns:
        Rows with the keys
        name, type;
        shape: of the output for one sample; a list of shapes if the layer has several outputs;
        weights: shapes of the parameters with two or more dimensions;
        parameters: number of parameters; shared parameters count in the first layer that uses them;
        bytes: size of the parameters;
        settings: text;
        flops: of a forward pass of one sample, without inner layers.
        shape and flops are None if the model cannot be called with `inputs`, or the layer is not called.
    """
    module = callable_on_samples(module)
    rows = _Rows(module)
    with _modes_restored(module), torch.no_grad():
        module.eval()
        for device in _devices(module):
            # A model that cannot be called must not prevent its training.
            with suppress(Exception), rows.watching(), rows.counter:
                _forward(module, inputs, device)
                break
    return rows.all()


def model_flops(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[int | None, int | None]:
    """Return the operations of (forward pass, backward pass) of one sample; None if the model cannot be called."""
    module = callable_on_samples(module)
    with _modes_restored(module), torch.enable_grad():
        module.eval()
        for device in _devices(module):
            with suppress(Exception), _FlopCounter() as counter:
                outputs, weights = _forward(module, inputs, device)
                forward: int = counter.get_total_flops()
                sums = [output.sum() for output in _tensors(outputs) if output.requires_grad]
                # Layers of Keras have no gradients on meta tensors.
                if weights and not sums and device.type == "meta":
                    continue
                torch.autograd.grad(sums, weights, allow_unused=True)
                return forward, counter.get_total_flops() - forward
    return None, None


def training_flops(
    module: nn.Module, problem: Problem, inputs: Sequence[Tensor], targets: Tensor, cycle: int = 1
) -> float | None:
    """Return the operations of the passes of a training step per sample, without optimizer and metrics.

    The result is the mean over `cycle` steps; None if the steps cannot be computed.

    Args:
        cycle: number of steps after which the kinds of steps repeat, such as `cycle` of a GAN.
    """
    step = _Step(module, problem)
    for device in _devices(module):
        batch = tuple(tensor.to(device) for tensor in inputs), targets.to(device)
        counter = _FlopCounter()
        # Sorted by layer, as by default, torch refuses losses that contain a gradient, such as a gradient penalty.
        counter.mod_tracker = _WholeModel()  # type: ignore[assignment]
        random_streams = torch.random.fork_rng()
        with suppress(Exception), _modes_restored(module), random_streams, torch.enable_grad(), counter:
            for layer in module.modules():
                # In training mode, batch normalization may wait for other ranks; none of its operations is counted.
                layer.training = not isinstance(layer, _BatchNorm)
            for number in range(cycle):
                weights, buffers = _copies(step, device)
                loss = functional_call(step, weights | buffers, (*batch, number))
                trained = [weight for weight in weights.values() if weight.requires_grad]
                torch.autograd.grad(loss, trained, allow_unused=True)
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
        self.counter = _FlopCounter()
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


def _devices(module: nn.Module) -> list[torch.device]:
    """Return the devices to try: meta, which computes nothing but lacks values to read, and the model's own."""
    own, meta = next(module.parameters()).device, torch.device("meta")
    return [own, meta] if own.type == "cpu" and is_small(module) else [meta, own]


@contextmanager
def _modes_restored(module: nn.Module) -> Iterator[None]:
    """Restore the mode of each layer, training or evaluation, on exit."""
    before = [(layer, layer.training) for layer in module.modules()]
    try:
        yield
    finally:
        for layer, training in before:
            layer.training = training


def _forward(
    module: nn.Module, inputs: Sequence[Tensor], device: torch.device
) -> tuple[object, list[Tensor]]:
    """Call the model on a device without changing its tensors; return its output and copies of its trained weights."""
    weights, buffers = _copies(module, device)
    with torch.random.fork_rng(devices=[]):
        output = functional_call(module, weights | buffers, tuple(tensor.to(device) for tensor in inputs))
    return output, [weight for weight in weights.values() if weight.requires_grad]


def _copies(module: nn.Module, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return copies of the parameters and of the buffers, which a layer may update even in evaluation mode."""
    weights = {
        name: weight.detach().to(device, copy=True).requires_grad_(weight.requires_grad)
        for name, weight in module.named_parameters()
    }
    return weights, {name: buffer.to(device, copy=True) for name, buffer in module.named_buffers()}


class _FlopCounter(FlopCounterMode):
    """torch's counter without torch.compile's wrapper, which costs 1 s of imports, and with a corrected formula."""

    def __init__(self) -> None:
        # torch's formula multiplies the operations of the weights' gradients by the number of groups.
        corrected = {torch.ops.aten.convolution_backward: _convolution_backward_flops}
        super().__init__(display=False, custom_mapping=corrected)

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        kind: Any = type(self.mode)
        kind.__torch_dispatch__ = unwrap(kind.__torch_dispatch__)
        return self

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        if func_packet not in self.flop_registry and any(name in str(func_packet) for name in FUSED_KERNELS):
            raise NotImplementedError(f"the operations of {func_packet} are unknown")
        return super()._count_flops(func_packet, out, args, kwargs)  # type: ignore[no-untyped-call]


def _convolution_backward_flops(
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
    """Return the operations of a convolution's gradients; each of the two has the products of the forward pass.

    Args:
        w_shape: shape of the weights; its second side is the channels of one group.
    """
    return sum(output_mask[:2]) * conv_flop_count(x_shape, w_shape, grad_out_shape, transposed)
