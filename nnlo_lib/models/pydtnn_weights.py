"""Weights in PyDTNN's NPZ layout: arrays `<layer>_<type>_<variable>`, axes in NHWC or NCHW order.

PyDTNN counts all layers from the input, layer 0, with activations, pooling and dropout. Dense weights are (inputs,
outputs); convolutions are (inputs, height, width, outputs) in NHWC order and (outputs, inputs, height, width) in NCHW
order. A dense layer behind an image has its inputs in the order of the flattened image. The file does not name the order.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from nnlo_lib.core.errors import UserError

Array = npt.NDArray[Any]
AxisOrder = Literal["NHWC", "NCHW"]
AXIS_ORDERS: tuple[AxisOrder, ...] = ("NHWC", "NCHW")
KEY = re.compile(r"(\d+)_(\w+?)_(weights|biases|beta|gamma|running_mean|running_var)")
# Of a file with float64 arrays and headers, relative to the model's parameters.
MAX_BYTES_PER_PARAMETER = 16
HEADER_BYTES = 1 << 20
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
    """A layer with weights; `channels` are those of the image that a dense layer has flattened, 1 for other layers."""

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

    `channels` are those of an input image; 1 for other inputs, None if unknown.
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


def read_pydtnn_weights(path: str, module: nn.Module, channels: int | None) -> dict[str, Tensor]:
    """Return the tensors of a file by their names in the network; shapes that do not fit are left to the caller."""
    layers = list(pydtnn_layers(module, channels))
    parameters = sum(tensor.numel() for tensor in module.state_dict().values())
    stored = _stored_layers(path, parameters)
    if len(stored) != len(layers):
        raise UserError(
            f"model.weights: {path} has {len(stored)} layers with weights, but the model has {len(layers)}; use the model of "
            "the file"
        )
    pairs = list(zip(layers, stored, strict=True))
    orders = [order for order in AXIS_ORDERS if _fits(pairs, order)]
    found = [_tensors(pairs, order) for order in orders or AXIS_ORDERS[:1]]
    if len(found) == 2 and any(not torch.equal(found[0][name], found[1][name]) for name in found[0]):
        raise UserError(
            f"model.weights: {path} fits NHWC and NCHW order of the axes; PyDTNN's files do not name the order, so that "
            "the weights cannot be read"
        )
    kept = {
        name: tensor for name, tensor in module.state_dict().items() if name.endswith("num_batches_tracked")
    }
    return found[0] | kept


def _stored_layers(path: str, parameters: int) -> list[Mapping[str, Array]]:
    """Return the variables of each layer in the file, in the order of PyDTNN's numbers."""
    layers: dict[int, dict[str, Array]] = {}
    for key, array in _arrays(path, parameters).items():
        match = KEY.fullmatch(key)
        if match is None:
            raise UserError(
                f"model.weights: {path} has the array {key}, but PyDTNN's are named like 1_Conv2D_weights; use a file that "
                "PyDTNN has written"
            )
        if array.dtype.kind != "f":
            raise UserError(
                f"model.weights: {path}: {key} is {array.dtype}, but weights are floats; correct the file"
            )
        layers.setdefault(int(match[1]), {})[match[3]] = array
    return [variables for _, variables in sorted(layers.items())]


def _arrays(path: str, parameters: int) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(path) as archive:
            declared = sum(member.file_size for member in archive.infolist())
        limit = MAX_BYTES_PER_PARAMETER * parameters + HEADER_BYTES
        if declared > limit:
            raise UserError(
                f"model.weights: {path} declares {declared:,} bytes, but the model has {parameters:,} parameters; use the "
                "model of the file"
            )
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise UserError(f"model.weights: {path} is no NPZ file of arrays, or is damaged: {error}") from error


def _fits(pairs: list[tuple[PydtnnLayer, Mapping[str, Array]]], order: AxisOrder) -> bool:
    return all(
        _as_torch(layer, "weights", variables["weights"], order).shape == layer.module.weight.shape
        for layer, variables in pairs
        if isinstance(layer.module, nn.Conv2d) and "weights" in variables
    )


def _tensors(pairs: list[tuple[PydtnnLayer, Mapping[str, Array]]], order: AxisOrder) -> dict[str, Tensor]:
    return {
        f"{layer.name}.{NAMES[variable]}": torch.from_numpy(
            np.ascontiguousarray(_as_torch(layer, variable, array, order))
        )
        for layer, variables in pairs
        for variable, array in variables.items()
    }


def _as_torch(layer: PydtnnLayer, variable: str, array: Array, order: AxisOrder) -> Array:
    """Return a stored array with the axes of torch, or unchanged if its shape does not fit the layer."""
    if variable != "weights":
        return array.reshape(-1)
    if isinstance(layer.module, nn.Conv2d):
        return array.transpose(3, 0, 1, 2) if array.ndim == 4 and order == "NHWC" else array
    if array.ndim != 2 or order == "NCHW" or len(array) % layer.channels:
        return array.T
    # From (height, width, channels) to (channels, height, width).
    image = array.reshape(-1, layer.channels, array.shape[1])
    return image.transpose(2, 1, 0).reshape(array.shape[1], len(array))


def pydtnn_arrays(module: nn.Module, channels: int | None, order: AxisOrder) -> dict[str, Array]:
    """Return the arrays of a network in PyDTNN's layout."""
    tensors = module.state_dict()
    return {
        layer.key(variable): np.ascontiguousarray(
            _as_stored(layer, variable, tensors[f"{layer.name}.{NAMES[variable]}"].cpu().numpy(), order)
        )
        for layer in pydtnn_layers(module, channels)
        for variable in layer.variables
    }


def _as_stored(layer: PydtnnLayer, variable: str, array: Array, order: AxisOrder) -> Array:
    """Return an array of torch with PyDTNN's axes, the inverse of `_as_torch`."""
    if variable != "weights":
        return array
    if isinstance(layer.module, nn.Conv2d):
        return array.transpose(1, 2, 3, 0) if order == "NHWC" else array
    if order == "NCHW":
        return array.T
    image = array.reshape(len(array), layer.channels, -1)
    return image.transpose(2, 1, 0).reshape(array.shape[1], len(array))


def write_pydtnn_weights(part: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to an NPZ file, compressed as PyDTNN does."""
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
