"""Conversion of stored arrays to normalized input tensors of a model."""

from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nnlo_lib.config import ConfigModel
from nnlo_lib.config.data import DataConfig, NormalizationConfig
from nnlo_lib.config.problem import DenseClassificationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import sample_shape_text
from nnlo_lib.data.loading.augment import center_crop
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.data.readers.base import Array, Inputs
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest
from nnlo_lib.models.factory import Shape
from nnlo_lib.train.replica.device import to_device

INDEX_TYPES = ("int32", "int64")  # torch's embedding takes these types only


class Preprocessor:
    """Moves mini-batches to `device` and normalizes them there, so that images are transferred as bytes.

    Inputs become normalized `dtype`, and images channels-last if `channels_last`. Indices (int32 and int64) keep
    their type.
    """

    def __init__(
        self, manifest: DataManifest, data: DataConfig, device: str, dtype: torch.dtype = torch.float32,
        channels_last: bool = True,
    ) -> None:  # fmt: skip
        self.dtype, self._crop, self._device, self._channels_last = dtype, data.crop, device, channels_last
        self.shapes = tuple(_cropped(column, data.crop) for column in manifest.inputs)
        self._affine = [_affine(column, manifest.scale, data, device, dtype) for column in manifest.inputs]

    @property
    def shape(self) -> Shape:
        """Input shape of the model: shape of a sample, or a tuple of shapes for several inputs."""
        return self.shapes[0] if len(self.shapes) == 1 else self.shapes

    @property
    def sample_text(self) -> str:
        """Shapes of the inputs of a sample as a phrase for error messages: `samples are 1 x 8 x 8`."""
        return f"samples are {' and '.join(map(sample_shape_text, self.shapes))}"

    def __call__(self, inputs: Inputs, labels: Array) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return (tensors of the inputs, labels); larger images are cropped at the center."""
        stored = tuple(to_device(array, self._device) for array in self.cropped(inputs))
        # In place even if `to_device` copies nothing: Split.take returns new arrays, which are used once.
        tensors = tuple(self._input(*each, in_place=True) for each in zip(stored, self._affine, strict=True))
        return tensors, to_device(labels, self._device)

    def cropped(self, inputs: Inputs) -> Inputs:
        """Return stored inputs with larger images cropped at the center."""
        return center_crop(inputs, self._crop) if self._crop else inputs

    def of_stored(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors of cropped inputs that are on the device already; they stay as they are."""
        return tuple(self._input(*each, in_place=False) for each in zip(inputs, self._affine, strict=True))

    def normalized(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Return what `__call__` makes of stored samples, for exporters: no operation is in place."""
        tensors, stored = [], center_crop(inputs, self._crop) if self._crop else inputs
        for tensor, affine in zip(stored, self._affine, strict=True):
            if affine:
                factor, *offset = affine
                tensor = tensor.to(factor.dtype) * factor
                tensor = (tensor + offset[0] if offset else tensor).to(self.dtype)
            tensors.append(tensor)
        return tuple(tensors)

    def _input(self, stored: Tensor, affine: tuple[Tensor, ...], in_place: bool) -> Tensor:
        if not affine:
            return stored
        if stored.dim() == 4 and self._channels_last:
            stored = stored.contiguous(memory_format=torch.channels_last)
        factor, *offset = affine
        values = stored.to(factor.dtype, copy=not in_place).mul_(factor)
        return (values.add_(*offset) if offset else values).to(self.dtype)


def _cropped(column: ArraySpec, crop: int | None) -> tuple[int, ...]:
    if crop is None:
        return column.shape
    if len(column.shape) != 3 or crop > min(column.shape[1:]):
        raise UserError(
            f"data.crop: {crop} needs images of at least {crop} x {crop} pixels, but the samples have shape "
            f"{column.shape}; use a smaller crop or remove data.crop"
        )
    return (column.shape[0], crop, crop)


def _affine(
    column: ArraySpec, scale: float, data: DataConfig, device: str, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Return (factor,) or (factor, offset), scalar or (channels, 1, ...); an empty tuple for indices.

    `scale`: factor from stored bytes to the unit range.
    """
    if column.dtype in INDEX_TYPES:
        return ()
    scale = scale if column.dtype == "uint8" else 1.0
    if data.normalize == "unit":
        return (torch.tensor(scale, dtype=torch.float64).to(device, dtype),)
    if isinstance(data.normalize, NormalizationConfig):
        given = data.normalize.mean, data.normalize.std
        mean, std = ([value / scale for value in values] for values in given)
    else:
        # A constant channel has a standard deviation of 0; it becomes 0 and not NaN.
        mean, std = list(column.mean), [value or 1.0 for value in column.std]
    if len(mean) != (column.shape or (1,))[0]:
        raise UserError(
            f"data.normalize: {len(mean)} values are configured, but {column.name} {column.shape} has {column.shape[0]} "
            "channels; give one value per channel"
        )
    # One multiplication and one addition per value, with constants that are rounded only once.
    factor = 1 / torch.tensor(std, dtype=torch.float64)
    offset = -torch.tensor(mean, dtype=torch.float64) * factor
    shape = (-1, *(1,) * (len(column.shape) - 1))
    # The offset removes the mean; in float32, the digits of a small deviation from a large mean would be lost.
    kind = torch.float64 if column.dtype == "float64" else dtype
    return factor.reshape(shape).to(device, kind), offset.reshape(shape).to(device, kind)


def made_up_batch(manifest: DataManifest, size: int, problem: ConfigModel | None = None) -> Batch:
    """Return a batch of random samples, as the store would give it, with labels of all classes."""
    labels, classes = manifest.labels, manifest.classes
    if isinstance(problem, DenseClassificationConfig):
        classes = classes or problem.classes
    if classes:
        # The last class first, because it exceeds the outputs of a model with too few.
        places = np.arange(classes - 1, classes - 1 + size * prod(labels.shape)) % classes
        made_up = places.reshape(size, *labels.shape)
    else:
        made_up = _made_up((size, *labels.shape), labels.dtype)
    inputs = tuple(_made_up((size, *column.shape), column.dtype) for column in manifest.inputs)
    return Batch(0, inputs, made_up, np.arange(size), size, size)


def _made_up(shape: tuple[int, ...], dtype: str) -> Array:
    """Return random floats in 0..1, random bytes, or zeros, which are valid indices."""
    draws = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return np.asarray(draws.random(shape)).astype(dtype)
    return draws.integers(0, 256, shape).astype(dtype) if dtype == "uint8" else np.zeros(shape, dtype)
