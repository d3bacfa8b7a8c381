"""Readers: what turns the original files of a data set into arrays, a bounded piece at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Piece = tuple[Features, Labels]

READERS = {
    "digits": "nnlo_lib.data.readers.digits",
    "idx": "nnlo_lib.data.readers.idx",
}


@dataclass(frozen=True)
class Samples:
    """One split as its files give it: `count` samples, whose labels come from the file `origin`.

    `pieces(size)` yields features (n, channels, height, width) and labels (n,), n = `size` but for the last.
    """

    count: int
    origin: Path
    pieces: Callable[[int], Iterator[Piece]]


def read(reader: str, folder: Path) -> dict[str, Samples]:
    """Open the original files in `folder`: the samples of each split. Raises UserError on damaged files."""
    splits: dict[str, Samples] = import_module(READERS[reader]).read(folder)
    return splits
