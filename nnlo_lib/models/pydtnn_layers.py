"""Layers with weights of a network, with PyDTNN's numbers and names."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from nnlo_lib.core.errors import UserError

SEQUENCES_ONLY = (
    "PyDTNN's weights can be converted for sequences of layers only; use safetensors for this network"
)
NAMES = {  # names of the variables in torch
    "weights": "weight", "biases": "bias", "gamma": "weight", "beta": "bias", "running_mean": "running_mean",
    "running_var": "running_var",
}  # fmt: skip
TYPES: dict[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.Conv2d: ("Conv2D", ("weights", "biases")),
    nn.Linear: ("FC", ("weights", "biases")),
    nn.BatchNorm1d: ("BatchNormalization", ("beta", "gamma", "running_mean", "running_var")),
    nn.BatchNorm2d: ("BatchNormalization", ("beta", "gamma", "running_mean", "running_var")),
}
LAYERS_WITHOUT_COUNTERPART = (nn.AdaptiveAvgPool2d, nn.Identity)  # PyDTNN's networks do not count them


@dataclass(frozen=True)
class PydtnnLayer:
    """A layer with weights.

    Attributes:
        number: PyDTNN's number of the layer.
        name: name of the layer in the network.
        module: the layer.
        channels: channels of the image that a dense layer has flattened; 1 for other layers.
    """

    number: int
    name: str
    module: nn.Module
    channels: int = 1

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables in PyDTNN."""
        has = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        return tuple(each for each in TYPES[type(self.module)][1] if NAMES[each] in has)

    def key(self, variable: str) -> str:
        """Return the name of a variable's array."""
        return f"{self.number}_{TYPES[type(self.module)][0]}_{variable}"


def pydtnn_layers(module: nn.Module, channels: int | None) -> Iterator[PydtnnLayer]:
    """Yield the layers with weights of a sequence of layers. Raises UserError for another network.

    Args:
        module: the network.
        channels: channels of an input image; 1 for other inputs, None if unknown.
    """
    if not isinstance(module, nn.Sequential):
        raise UserError(f"{type(module).__name__}: {SEQUENCES_ONLY}")
    number, flattened = 0, 1
    for name, layer in _leaves(module, ""):
        number += not isinstance(layer, LAYERS_WITHOUT_COUNTERPART)
        if isinstance(layer, nn.Conv2d):
            if layer.groups > 1:
                raise UserError(
                    f"{name}: grouped convolutions have another layout in PyDTNN, which nnlo cannot convert"
                )
            channels = layer.out_channels
        if isinstance(layer, nn.Flatten):
            if channels is None:
                raise UserError(
                    f"{name}: the number of channels before it is unknown, so that PyDTNN's order of its outputs is unknown"
                )
            flattened = channels
        if type(layer) in TYPES:
            yield PydtnnLayer(number, name, layer, flattened if isinstance(layer, nn.Linear) else 1)
        elif any(True for _ in layer.parameters()):
            raise UserError(
                f"{name}: PyDTNN has no layer {type(layer).__name__}; use safetensors for this network"
            )
        # Only the first dense layer has the inputs of the flattened image.
        flattened = 1 if isinstance(layer, nn.Linear) else flattened


def _leaves(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if isinstance(child, nn.Sequential):
            yield from _leaves(child, inner)
        elif any(True for _ in child.children()):
            raise UserError(f"{inner}: {type(child).__name__}: {SEQUENCES_ONLY}")
        else:
            yield inner, child
