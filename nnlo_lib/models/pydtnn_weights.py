"""Weights in PyDTNN's NPZ layout: arrays `<layer>_<type>_<variable>`, axes in NHWC or NCHW order.

PyDTNN counts all layers from the input, layer 0, with activations, pooling and dropout. Dense weights are (inputs,
outputs); convolutions are (inputs, height, width, outputs) in NHWC order and (outputs, inputs, height, width) in NCHW
order. A dense layer behind an image has its inputs in the order of the flattened image. The file does not name the order.
"""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.models.pydtnn_layers import NAMES, PydtnnLayer, pydtnn_layers

Array = npt.NDArray[Any]
AxisOrder = Literal["NHWC", "NCHW"]
AXIS_ORDERS: tuple[AxisOrder, ...] = ("NHWC", "NCHW")
KEY = re.compile(r"(\d+)_(\w+?)_(weights|biases|beta|gamma|running_mean|running_var)")
# Of a file with float64 arrays and headers, relative to the model's parameters.
MAX_BYTES_PER_PARAMETER = 16
HEADER_BYTES = 1 << 20


def read_pydtnn_weights(path: str, module: nn.Module, channels: int | None) -> dict[str, Tensor]:
    """Return the tensors of a file by their names in the network; shapes that do not fit are left to the caller.

    Args:
        path: the NPZ file.
        module: network of the weights.
        channels: channels of an input image; 1 for other inputs, None if unknown.

    Raises:
        UserError: if the file is damaged, has other layers, or fits both orders of the axes with different results.
    """
    layers = list(pydtnn_layers(module, channels))
    stored = _stored_layers(path, _parameters(module))
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


def pydtnn_arrays(module: nn.Module, channels: int | None, order: AxisOrder) -> dict[str, Array]:
    """Return the arrays of a network in PyDTNN's layout.

    Args:
        module: the network.
        channels: channels of an input image; 1 for other inputs, None if unknown.
        order: order of the axes.

    Raises:
        UserError: if PyDTNN has no such network.
    """
    tensors = module.state_dict()
    return {
        layer.key(variable): np.ascontiguousarray(
            _as_stored(layer, variable, tensors[f"{layer.name}.{NAMES[variable]}"].cpu().numpy(), order)
        )
        for layer in pydtnn_layers(module, channels)
        for variable in layer.variables
    }


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


def _parameters(module: nn.Module) -> int:
    return sum(tensor.numel() for tensor in module.state_dict().values())


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
    """Return a stored array with the axes of torch, or unchanged if its shape does not fit the layer.

    Args:
        layer: layer of the array.
        variable: PyDTNN's name of the array.
        array: the array.
        order: order of the axes in the file.
    """
    if variable != "weights":
        return array.reshape(-1)
    if isinstance(layer.module, nn.Conv2d):
        return array.transpose(3, 0, 1, 2) if array.ndim == 4 and order == "NHWC" else array
    if array.ndim != 2 or order == "NCHW" or len(array) % layer.channels:
        return array.T
    # From (height, width, channels) to (channels, height, width).
    image = array.reshape(-1, layer.channels, array.shape[1])
    return image.transpose(2, 1, 0).reshape(array.shape[1], len(array))


def _as_stored(layer: PydtnnLayer, variable: str, array: Array, order: AxisOrder) -> Array:
    """Return an array of torch with PyDTNN's axes, the inverse of `_as_torch`.

    Args:
        layer: layer of the array.
        variable: PyDTNN's name of the array.
        array: the array.
        order: order of the axes in the file.
    """
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
