"""Files of named arrays - HDF5, NPZ, NPY - whose rows are read by range, whatever the size of the whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_kind import ArrayHeader
from nnlo_lib.data.readers.hdf5 import find_hdf5, hdf5_names, hdf5_rows
from nnlo_lib.data.readers.npy import find_npy, find_npz, npy_rows, npz_names, npz_rows

ARRAY_SUFFIXES = (".h5", ".hdf5", ".he5", ".npz", ".npy")
SHOWN = 12


@dataclass(frozen=True)
class FileArray:
    """An array in a file, nested groups as group/name: the shape of all of it, and its type, byte order aside."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def rows(self, start: int, end: int) -> Array:
        """Read rows start..end-1 in native byte order. Raises UserError if the file is damaged."""
        with _blamed(self.path):
            array = _format(self.path).rows(self.path, self.name, start, end)
            native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
            if (native.shape, native.dtype) != ((end - start, *self.shape[1:]), self.dtype):
                raise ValueError("it changed while it was read")
            return native


def find_arrays(path: Path, key: str) -> list[FileArray]:
    """Return the array `key`, or those of the group `key` sorted by name, from the headers alone.

    An NPY's only array answers to any key. Raises UserError if there is no such key, or if what the headers declare
    cannot be in the file.
    """
    key = key.strip("/")
    with _blamed(path):
        format = _format(path)
        found = format.find(path, key)
        if not found:
            names = format.names(path)
            shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            raise UserError(f"{path} has no {key!r}; it has {shown or 'nothing'}: see data.reader")
        return [
            FileArray(path, name, kind.shape, kind.dtype.newbyteorder("=")) for name, kind in found.items()
        ]


def is_array_file(path: Path) -> bool:
    """Tell by its name, else by its first bytes, whether a file is meant to hold arrays."""
    with _blamed(path):
        return path.suffix.lower() in ARRAY_SUFFIXES or _recognised(path) is not None


def is_npy(path: Path) -> bool:
    """Tell by its first bytes whether a file holds a single array without a name."""
    with _blamed(path):
        return _recognised(path) is NPY


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # h5py, zipfile and numpy raise a dozen types on damaged bytes
        reason = str(error) or type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}); make it or get it again") from error


@dataclass(frozen=True)
class ArrayFileFormat:
    """How a kind of file is read: its names, what a key stands for, some rows of an array."""

    names: Callable[[Path], list[str]]
    find: Callable[[Path, str], dict[str, ArrayHeader]]
    rows: Callable[[Path, str, int, int], Array]


HDF5 = ArrayFileFormat(hdf5_names, find_hdf5, hdf5_rows)
NPZ = ArrayFileFormat(npz_names, find_npz, npz_rows)
NPY = ArrayFileFormat(lambda path: [], find_npy, npy_rows)


def _format(path: Path) -> ArrayFileFormat:
    format = _recognised(path)
    if format is None:
        raise ValueError("it is neither HDF5 nor NPZ nor NPY")
    return format


def _recognised(path: Path) -> ArrayFileFormat | None:
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return NPY
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return NPZ
    return HDF5 if h5py.is_hdf5(path) else None  # finds its mark behind MATLAB's user block as well
