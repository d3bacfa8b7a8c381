"""Stacked replicas: n replicas of a network as a single network with n mini-batches in one pass.

The batch consists of n equal parts, one for each node. Layers without parameters process it as a single
batch, dense layers as one batched product. Every other layer processes the parts one after another, with its
node's parameters.

torch.func cannot keep the bits of ranks that compute alone: vmap draws the dropout of all nodes from one stream, and its
gradients of simplemlp and simplecnn differ in the last digits, by up to 8e-8.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.blocks import PairPool, is_pair_pool

DropoutLayer = nn.modules.dropout._DropoutNd
CHANNELS_LAST_MIN_CHANNELS = 4  # with fewer channels, convolutions are faster channels first


@dataclass
class StackContext:
    """State that the stacked layers share in one pass."""

    counts: Sequence[int] = ()  # number of real samples in each part; the rest of a part is padding
    tensors: dict[str, Tensor] = field(default_factory=dict)  # stacked parameters (n, *shape) by name
    buffers: Sequence[dict[str, Tensor]] = ()  # buffers by name, for each node
    # state of torch's generator of the device for each node; needed if a layer draws random numbers
    streams: list[Tensor] = field(default_factory=list)


class StackedLayer(nn.Module):
    """Base of the stacked layers: n copies, one per node, of the layer at `path` in the original network."""

    def __init__(self, layer: nn.Module, path: str, nodes: StackContext) -> None:
        super().__init__()
        self.prefix = f"{path}." if path else ""
        self.original = (layer,)  # a tuple, so that its parameters are not registered in this module
        self.nodes = nodes


class StackedLinear(StackedLayer):
    """n dense layers as one batched product."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply layer i to part i of (n * samples, ..., in)."""
        weight = self.nodes.tensors[f"{self.prefix}weight"]  # (n, out, in)
        parts = inputs.reshape(len(weight), -1, inputs.shape[-1])
        if self.original[0].bias is None:
            outputs = torch.bmm(parts, weight.transpose(1, 2))
        else:
            bias = self.nodes.tensors[f"{self.prefix}bias"]  # (n, out)
            outputs = torch.baddbmm(bias[:, None], parts, weight.transpose(1, 2))
        return outputs.reshape(*inputs.shape[:-1], -1)


class StackedConvolution(StackedLayer):
    """n convolutions, one after another, which is faster than one grouped convolution."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply layer i to part i of (n * samples, channels, ...)."""
        weights = self.nodes.tensors[f"{self.prefix}weight"].unbind()
        layer, parts = self.original[0], inputs.chunk(len(weights))
        biases: Sequence[Tensor | None] = [None] * len(weights)
        if layer.bias is not None:
            biases = self.nodes.tensors[f"{self.prefix}bias"].unbind()
        if weights[0].shape[1] < CHANNELS_LAST_MIN_CHANNELS:
            # The stacked tensors have the layout of the replica, which can be channels last.
            weights = tuple(weight.clone(memory_format=torch.contiguous_format) for weight in weights)
        each = zip(parts, weights, biases, strict=True)
        return torch.cat([layer._conv_forward(*arguments) for arguments in each])  # type: ignore[operator]


class PerNodeLayer(StackedLayer):
    """n copies of any layer, applied one after another, each to the real samples and with the generator of its node."""

    def __init__(self, layer: nn.Module, path: str, nodes: StackContext) -> None:
        super().__init__(layer, path, nodes)
        self.draws_random_numbers = any(isinstance(inner, DropoutLayer) for inner in layer.modules())

    def forward(self, *inputs: Tensor) -> Tensor:
        """Apply layer i to the real samples of part i of each input; padding samples yield zeros."""
        counts = self.nodes.counts
        parts = zip(*(tensor.chunk(len(counts)) for tensor in inputs), strict=True)
        width = len(inputs[0]) // len(counts)
        outputs = []
        for node, part in enumerate(parts):
            output = self._drawing(node, tuple(tensor[: counts[node]] for tensor in part))
            outputs += [output, *[torch.zeros_like(output[:1])] * (width - counts[node])]  # same layout
        return torch.cat(outputs)

    def _drawing(self, node: int, part: tuple[Tensor, ...]) -> Tensor:
        if not (self.draws_random_numbers and self.training):
            return self._apply_one(node, part)
        # Each node continues its own stream, so that its draws equal the draws of a replica that is trained by
        # itself.
        on_gpu, device = part[0].is_cuda, part[0].device
        generator = torch.cuda.default_generators[device.index] if on_gpu else torch.default_generator
        generator.set_state(self.nodes.streams[node])
        # Images are channels-last, as in a replica, because random numbers follow the memory order.
        images = (
            tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
            for tensor in part
        )
        output = self._apply_one(node, tuple(images))
        self.nodes.streams[node] = generator.get_state()
        return output

    def _apply_one(self, node: int, part: tuple[Tensor, ...]) -> Tensor:
        stacked = {name: tensor[node] for name, tensor in self.nodes.tensors.items()}
        tensors = stacked | self.nodes.buffers[node]
        of_layer = {
            name.removeprefix(self.prefix): tensors[name] for name in tensors if name.startswith(self.prefix)
        }
        return require_single_output(functional_call(self.original[0].train(self.training), of_layer, part))


class StackedNetwork:
    """Network for n nodes at once, built from the `module` of one node.

    With `whole`, the network is a single per-node layer.

    Attributes:
        draws_random_numbers: True if the network draws random numbers in training mode.
    """

    def __init__(self, module: nn.Module, whole: bool = False) -> None:
        self.nodes = StackContext()
        original = copy.deepcopy(module)
        self.module = (
            PerNodeLayer(original, "", self.nodes) if whole else _stacked_module(original, "", self.nodes)
        )
        self.draws_random_numbers = any(isinstance(layer, DropoutLayer) for layer in module.modules())

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the scores of n equal parts of samples, with the parameters and buffers in `nodes`."""
        output: Tensor = self.module(*inputs)
        return output


def _stacked_module(module: nn.Module, path: str, nodes: StackContext) -> nn.Module:
    """Replace the layers that differ between nodes; a module with its own tensors becomes one stacked layer."""
    # Exact types, because a subclass can compute something else.
    if type(module) is nn.Linear:
        return StackedLinear(module, path, nodes)
    if type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d):
        return StackedConvolution(module, path, nodes)
    if is_pair_pool(module):
        return PairPool()
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    if isinstance(module, DropoutLayer) or own:
        return PerNodeLayer(module, path, nodes)
    for name, child in module.named_children():
        setattr(module, name, _stacked_module(child, f"{path}.{name}" if path else name, nodes))
    return module


def stack_network(module: nn.Module, example: tuple[Tensor, ...]) -> StackedNetwork:
    """Return the network for n nodes, checked with `example`: inputs of at least two samples.

    If the outputs differ from the outputs of `module`, because parts of the network mix samples, the whole
    network becomes a single per-node layer.
    """
    twin = StackedNetwork(module)
    return twin if _agrees(twin, module, example) else StackedNetwork(module, whole=True)


@torch.no_grad()
def _agrees(twin: StackedNetwork, module: nn.Module, example: tuple[Tensor, ...]) -> bool:
    was_training = module.training
    module.eval()
    twin.module.eval()
    twin.nodes.counts = [len(example[0])] * 2
    # Two nodes with different parameters and the samples in different order: a layer that mixes samples or
    # ignores its node's parameters gives other outputs.
    twin.nodes.tensors = {
        name: torch.stack([tensor, 0.5 * tensor]) for name, tensor in module.named_parameters()
    }
    twin.nodes.buffers = [dict(module.named_buffers())] * 2
    halves = {name: 0.5 * tensor for name, tensor in module.named_parameters()}
    try:
        found = twin(*(torch.cat([tensor, tensor.flip(0)]) for tensor in example))
    except (KeyError, RuntimeError, IndexError):  # for example tied parameters or a fixed batch size
        return False
    finally:
        module.train(was_training)
    module.eval()
    one = require_single_output(module(*example))
    two = functional_call(module, halves, tuple(tensor.flip(0) for tensor in example))
    module.train(was_training)
    wanted = torch.cat([one, two])
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-4, atol=1e-5)


def require_single_output(output: Any) -> Tensor:
    """Return the output of a model with one output. Raises UserError if the model has several."""
    if not isinstance(output, Tensor):
        raise UserError(
            "parallel.simulation.compute: batched supports models with a single output only, but the model has several; set "
            "parallel.simulation.compute: exact"
        )
    return output
