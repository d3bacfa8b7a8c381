"""Data sources of mpi_learn's scripts: generated batches and HDF5 files."""

from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.hdf5 import refuse_external_storage

Side = Array | Sequence[Array]  # inputs or outputs of a network: one or several arrays
Generated = Iterator[tuple[Side, Side]]


class Data:
    """Base class of data sources: derive from it and override `generate_data`.

    Attributes:
        batch_size: samples per step and worker. If it is None, it becomes the size of the first generated
            batch, or 100 for an H5Data without overridden methods.
        file_names: files that `generate_data` reads.
    """

    batch_size: int | None = None
    file_names: Sequence[str] = ()

    def __init__(self, batch_size: int | None = None) -> None:
        self.batch_size = batch_size

    def set_file_names(self, file_names: Sequence[str]) -> None:
        """Set the files that the next call of `generate_data` reads."""
        self.file_names = list(file_names)

    def generate_data(self) -> Generated:
        """Yield the batches (x, y) of one epoch, or ([x1, x2, ...], y)."""
        raise NotImplementedError(f"{type(self).__name__} must override generate_data()")

    def count_data(self) -> int:
        """Return the number of samples in `file_names`; it generates all of them once."""
        return sum(len(first_array(y)) for _, y in self.generate_data())


class H5Data(Data):
    """Reader of HDF5 files with one array or a group of arrays `features_name` and the array `labels_name`.

    Args:
        batch_size: samples per step and worker.
        features_name: name of the array or group of features.
        labels_name: name of the array of labels.
        cache: existing folder of each node, to which the store is copied before the training; empty: no copy.
        preloading: accepted without effect, because samples are always read ahead.
    """

    def __init__(
        self,
        batch_size: int | None = None,
        features_name: str = "features",
        labels_name: str = "labels",
        *,
        cache: str | None = None,
        preloading: int = 0,
    ) -> None:
        super().__init__(batch_size)
        self.cache, self.preloading = cache or None, preloading
        self.features_name, self.labels_name = features_name, labels_name

    def count_data(self) -> int:
        """Return the number of samples in `file_names`; only files of an overridden `load_data` are read."""
        if type(self).load_data is not H5Data.load_data:
            return sum(len(first_array(self.load_data(name)[1])) for name in self.file_names)
        return sum(self._count(name) for name in self.file_names)

    def _count(self, name: str) -> int:
        with h5py.File(name) as file:
            labels = file[self.labels_name]
            return len(labels if isinstance(labels, h5py.Dataset) else labels[min(labels)])

    def generate_data(self) -> Generated:
        """Yield the batches of each file in the order of `file_names`."""
        for name in self.file_names:
            x, y = self.load_data(name)
            first = first_array(x)
            size = self.batch_size or len(first)
            for start in range(0, len(first), size):
                yield _rows(x, start, start + size), _rows(y, start, start + size)

    def load_data(self, in_file_name: str) -> tuple[Side, Side]:
        """Return the features and labels of one file; override this method for other file formats."""
        with h5py.File(in_file_name) as file:
            return _read(file[self.features_name]), _read(file[self.labels_name])


def first_array(side: Side) -> Array:
    """Return the only or first array of inputs or outputs."""
    return side if isinstance(side, np.ndarray) else side[0]


def _read(item: Any) -> Side:
    return [_one(item[name]) for name in sorted(item)] if isinstance(item, h5py.Group) else _one(item)


def _one(dataset: Any) -> Array:
    refuse_external_storage(dataset)
    values: Array = dataset[:]
    return values


def _rows(side: Side, start: int, end: int) -> Side:
    return side[start:end] if isinstance(side, np.ndarray) else [each[start:end] for each in side]
