"""Summary of a model: its layers, and the floating-point operations of a sample in a pass and in training.

torch's counter includes matrix products, convolutions and attention; a multiply-add counts as two.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from nnlo_lib.models.layer_table_text import layer_table_text
from nnlo_lib.models.zoo.gan import callable_on_samples
from nnlo_lib.problems.base import Problem

LayerRow = dict[str, Any]
# Attributes of layers that the table shows, by the names that it gives them, and defaults that it omits.
SETTINGS = {
    "kernel_size": "kernel", "stride": "stride", "padding": "padding", "dilation": "dilation", "groups": "groups",
    "p": "rate", "hidden_size": "hidden_size", "num_heads": "num_heads",
}  # fmt: skip
PLAIN = {"dilation": "1", "groups": "1"}
WHOLE_LAYER_KERNELS = (
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
)


class ModelSummary(NamedTuple):
    """Layers of a model and `flops`, the operations of (forward, backward) of one sample, None if unknown."""

    layers: list[LayerRow]
    flops: tuple[int | None, int | None]

    @property
    def text(self) -> str:
        """The summary as a text table."""
        return layer_table_text(self.layers, self.flops)


def summarize_model(module: nn.Module, inputs: Sequence[Tensor]) -> ModelSummary:
    """Return the summary of a model (of a GAN: both networks); `inputs`: mini-batches of one sample.

    Layers are those that have their own parameters or no inner layers, in order of first use. The keys of their rows are
    name, type;
    shape: of the output for one sample; a list of shapes if the layer has several outputs;
    weights: shapes of the parameters with two or more dimensions;
    parameters: number of parameters; shared parameters count in the first layer that uses them;
    bytes: size of the parameters;
    settings: text;
    flops: of a forward pass of one sample, without inner layers.
    shape and flops are None if the model cannot be called with `inputs`, or the layer is not called.
    """
    networks = dict(module.named_children())
    # A GAN has no forward pass of its own; the critic of generated samples uses all of its layers.
    if {"generator", "critic"} <= networks.keys():
        noise = torch.zeros(1, int(module.latent), dtype=inputs[0].dtype)  # type: ignore[arg-type]
        names = ("generator", "critic")
        module, inputs = nn.Sequential(OrderedDict((name, networks[name]) for name in names)), (noise,)
    module = callable_on_samples(module)
    weights = {name: list(layer.parameters(recurse=False)) for name, layer in module.named_modules()}
    layers = {
        name: layer for name, layer in module.named_modules() if weights[name] or not list(layer.children())
    }
    called: dict[str, tuple[Any, int]] = {}
    flops: tuple[int | None, int | None] = None, None
    # A model that cannot be called must not prevent its training.
    with suppress(Exception), _counted(module) as counter:
        module.eval()
        with _watched(layers, counter) as watched:
            outputs = module(*(tensor.to(_device(module)) for tensor in inputs))
        called, forward = watched, counter.get_total_flops()
        sums = [output.sum() for output in _tensors(outputs) if output.requires_grad]
        torch.autograd.grad(sums, _trained(module), allow_unused=True)
        flops = forward, counter.get_total_flops() - forward
    rows, shown = list[LayerRow](), set[nn.Parameter]()
    # Layers that are not called come last, if they have parameters or no layer was called.
    for name in (*called, *(each for each in layers if each not in called and (weights[each] or not called))):
        own = [weight for weight in weights[name] if weight not in shown]
        shown.update(own)
        shape, operations = called.get(name, (None, None))
        rows.append({
            "name": name, "type": type(layers[name]).__name__, "shape": shape,
            "weights": [list(weight.shape) for weight in weights[name] if weight.dim() > 1],
            "parameters": sum(weight.numel() for weight in own), "bytes": sum(weight.nbytes for weight in own),
            "settings": _settings(layers[name]), "flops": operations,
        })  # fmt: skip
    return ModelSummary(rows, flops)


@contextmanager
def _watched(
    layers: Mapping[str, nn.Module], counter: FlopCounterMode
) -> Iterator[dict[str, tuple[Any, int]]]:
    """Yield shape of the output and operations of the layers that are called in this context, by name."""
    called: dict[str, tuple[Any, int]] = {}
    # For each running layer: the flop count at its start, and the flops of its inner layers.
    running: list[list[int]] = []

    def begin(*_: object) -> None:
        running.append([counter.get_total_flops(), 0])

    def end(name: str, _layer: nn.Module, _inputs: object, output: object) -> None:
        start, inside = running.pop()
        whole = counter.get_total_flops() - start
        if running:
            # The row of a layer excludes its inner layers, so that the column adds up to the whole model.
            running[-1][1] += whole
        shapes = [list(tensor.shape[1:]) for tensor in _tensors(output)]
        shape, before = called.get(name, (shapes[0] if len(shapes) == 1 else shapes, 0))
        called[name] = shape, before + whole - inside

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_pre_hook(begin).remove)
            hooks.callback(layer.register_forward_hook(partial(end, name)).remove)
        yield called


def training_flops(
    module: nn.Module, problem: Problem, inputs: Sequence[Tensor], targets: Tensor, cycle: int = 1
) -> float | None:
    """Return the operations of the passes of a training step per sample, without optimizer and metrics.

    The result is the mean over `cycle` steps, after which the kinds of steps of a GAN repeat; None if the steps cannot be
    computed. Inputs and targets are a mini-batch, (samples, ...) each; the module is not changed.
    """
    batch = tuple(tensor.to(_device(module)) for tensor in inputs), targets.to(_device(module))
    with suppress(Exception), _counted(module) as counter:
        for layer in module.modules():
            # In training mode, batch normalization may wait for other ranks; none of its operations is counted.
            layer.training = not isinstance(layer, _BatchNorm)
        for number in range(cycle):
            loss = problem.compute_loss(module, *batch, number).loss
            torch.autograd.grad(loss, _trained(module), allow_unused=True)
        return float(counter.get_total_flops() / cycle / len(targets))
    return None


class _OnePart(nullcontext[None]):
    """Stand-in for torch's ModuleTracker, with which torch refuses losses that contain a gradient, such as a penalty."""

    parents = frozenset({"Global"})


@contextmanager
def _counted(module: nn.Module) -> Iterator[FlopCounterMode]:
    """Count the operations in this context; restore modes, buffers and random streams on exit."""
    modes = [(layer, layer.training) for layer in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    device = _device(module)
    # torch's formula multiplies the operations of the weights' gradients by the number of groups.
    corrected = {torch.ops.aten.convolution_backward: _convolution_backward_flops}
    counter = FlopCounterMode(display=False, custom_mapping=corrected)
    counter.mod_tracker = _OnePart()  # type: ignore[assignment]
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        # The counter does not know the kernels of whole recurrent and attention layers, but their matrix products.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        for is_enabled, enable in WHOLE_LAYER_KERNELS:
            stack.callback(enable, is_enabled())
            enable(False)
        stack.enter_context(torch.enable_grad())
        stack.enter_context(counter)
        # Without torch.compile's wrapper, which imports for 1 s.
        kind: Any = type(counter.mode)
        kind.__torch_dispatch__ = unwrap(kind.__torch_dispatch__)
        try:
            yield counter
        finally:
            for layer, training in modes:
                layer.training = training
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


def _convolution_backward_flops(
    grad_out_shape: list[int], x_shape: list[int], w_shape: list[int], *others: Any, **_: Any
) -> int:
    """Return the operations of a convolution's gradients; each of the two has the products of the forward pass."""
    _, _, _, _, transposed, _, _, output_mask = others[:8]  # as the arguments of aten.convolution_backward
    return int(sum(output_mask[:2]) * conv_flop_count(x_shape, w_shape, grad_out_shape, transposed))


def _tensors(output: object) -> list[Tensor]:
    """Return all tensors in a layer's output, which may nest tuples, lists and dicts."""
    if isinstance(output, Tensor):
        return [output]
    inside = (
        output.values() if isinstance(output, dict) else output if isinstance(output, tuple | list) else ()
    )
    return [tensor for part in inside for tensor in _tensors(part)]


def _settings(layer: nn.Module) -> str:
    """Return, as text, the attributes of a layer that are in SETTINGS, without the defaults in PLAIN; (2, 3) is 2x3."""
    found = []
    for name, word in SETTINGS.items():
        value = getattr(layer, name, None)
        if isinstance(value, tuple):
            value = str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
        if isinstance(value, int | float | str) and str(value) != PLAIN.get(name):
            found.append(f"{word}={value}")
    return ", ".join(found)
