"""Where the user's samples come from."""

from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from nnlo_lib.data.readers import Array

Side = Array | Sequence[Array]  # what goes into a network, or comes out of it: one array or several
Generated = Iterator[tuple[Side, Side]]


class Data:
    """Derive from it and override `generate_data`.

    batch_size: samples per step and worker; None: as many as the first batch that is generated has.
    """

    batch_size: int | None = None
    file_names: Sequence[str] = ()

    def __init__(self, batch_size: int | None = None) -> None:
        self.batch_size = batch_size

    def set_file_names(self, file_names: Sequence[str]) -> None:
        """Take the files that the next `generate_data` is to read."""
        self.file_names = list(file_names)

    def generate_data(self) -> Generated:
        """Yield the batches (x, y) of one epoch, or ([x1, x2, ...], y)."""
        raise NotImplementedError(f"{type(self).__name__} must override generate_data()")


class H5Data(Data):
    """HDF5 files with the arrays `features_name`, or a group of several, and `labels_name`."""

    def __init__(
        self, batch_size: int | None = None, features_name: str = "features", labels_name: str = "labels"
    ) -> None:
        super().__init__(batch_size)
        self.features_name, self.labels_name = features_name, labels_name

    def generate_data(self) -> Generated:
        """Yield the batches of the files, one file after another."""
        for name in self.file_names:
            x, y = self.load_data(name)
            first = x if isinstance(x, np.ndarray) else x[0]
            size = self.batch_size or len(first)
            for start in range(0, len(first), size):
                yield _rows(x, start, start + size), _rows(y, start, start + size)

    def load_data(self, in_file_name: str) -> tuple[Side, Side]:
        """Return what one file holds; to override for files of other kinds."""
        with h5py.File(in_file_name) as file:
            return _read(file[self.features_name]), _read(file[self.labels_name])


def _read(item: Any) -> Side:
    return [_one(item[name]) for name in sorted(item)] if isinstance(item, h5py.Group) else _one(item)


def _one(dataset: Any) -> Array:
    values: Array = dataset[:]
    return values


def _rows(side: Side, start: int, end: int) -> Side:
    return side[start:end] if isinstance(side, np.ndarray) else [each[start:end] for each in side]
