"""Readers: what turns the original files of a data set into arrays, one shard's worth at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnlo_lib.core.lazy_import import load_implementation

Array = npt.NDArray[Any]
Inputs = tuple[Array, ...]
Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleBlock:
    """The samples of one shard as they will be stored.

    `inputs` has one array (n, *shape) for each input of the model, `labels` (n, ...) counts as the file does;
    `skipped` names the corrupt records left out, with the reason.
    """

    inputs: Inputs
    labels: Array
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConversionUnit:
    """What becomes one shard: reading it needs no other unit, so units can be converted in parallel.

    `name` is the shard's file name without suffix, `origin` the file that an error about a sample names.
    `read` may raise UserError; each call reads anew.
    """

    split: str
    name: str
    origin: Path
    read: Callable[[], SampleBlock]


@dataclass(frozen=True)
class DatasetContents:
    """What the files of a data set hold: units in the order of their samples, and the names of the arrays.

    Classes count from `first_class` in the stored labels; `class_names` may be empty.
    """

    units: tuple[ConversionUnit, ...]
    inputs: tuple[str, ...] = ("features",)
    labels: str = "labels"
    first_class: int = 0
    class_names: tuple[str, ...] = field(default=())


def read(reader: str, folder: Path, shard_size: int, options: Mapping[str, Any]) -> DatasetContents:
    """List what the files in `folder` hold, by their headers alone. Raises UserError on damaged files.

    The reader is the function `read` of the module of this package that is called like it.
    """
    contents: DatasetContents = load_implementation(f"{__name__}.{reader}:read")(
        folder, shard_size, **options
    )
    return contents


def shard_ranges(split: str, samples: int, shard_size: int) -> list[tuple[str, int, int]]:
    """Cut 0..samples-1 into shards: (name like train-00000-of-00006, first sample, end)."""
    count = -(-samples // shard_size)
    return [
        (f"{split}-{index:05d}-of-{count:05d}", index * shard_size, min(samples, (index + 1) * shard_size))
        for index in range(count)
    ]
