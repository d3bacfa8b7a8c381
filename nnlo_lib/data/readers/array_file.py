"""Access by row range to arrays in HDF5, NPZ and NPY files of any size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_formats import (
    Header,
    Unwritten,
    find_hdf5,
    find_npy,
    find_npz,
    hdf5_names,
    hdf5_rows,
    npy_rows,
    npz_names,
    npz_rows,
)
from nnlo_lib.data.readers.base import Array

ARRAY_SUFFIXES = (".h5", ".hdf5", ".he5", ".npz", ".npy")
SHOWN = 12
AS_NPZ, AS_TABLE = "write its arrays with numpy.savez", "set data.reader: {name: table, label: COLUMN}"
# First bytes of other files that are given as arrays: what the file is, and the remedy.
OTHER_FILES = {
    b"version https://git-lfs": ("a pointer of Git LFS in place of the file", "run `git lfs pull` in its repository"),
    b"MATLAB 5.0": ("a MATLAB file before version 7.3", "save it in MATLAB with '-v7.3', or write what scipy.io.loadmat returns with numpy.savez"),
    **dict.fromkeys((b"<!doctype", b"<!DOCTYPE", b"<html"), ("a web page", "download the file itself; its address may need a login")),
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), ("a pickle", AS_NPZ)),
    b"PAR1": ("a Parquet file", AS_TABLE), b"root\x00\x00": ("a ROOT file", AS_TABLE),
    b"\x1f\x8b": ("compressed by gzip", "unpack it with gunzip"), b"BZh9": ("compressed by bzip2", "unpack it with bunzip2"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it with unxz"), b"\x28\xb5\x2f\xfd": ("compressed by Zstandard", "unpack it with unzstd"),
}  # fmt: skip


class ArrayFileFormat(NamedTuple):
    """Functions that read one file format: names at the top level, headers of a key, rows of an array."""

    names: Callable[[Path], list[str]]
    find: Callable[[Path, str, Unwritten], dict[str, Header]]
    rows: Callable[[Path, str, int, int], Array]


HDF5 = ArrayFileFormat(hdf5_names, find_hdf5, hdf5_rows)
NPZ = ArrayFileFormat(npz_names, find_npz, npz_rows)
NPY = ArrayFileFormat(lambda path: [], find_npy, npy_rows)


@dataclass(frozen=True)
class FileArray:
    """An array in a file; `dtype` is its type in native byte order."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def rows(self, start: int, end: int) -> Array:
        """Return rows start..end-1 in native byte order. Raises UserError if the file is damaged."""
        with _with_path_in_errors(self.path):
            found = _format(self.path).rows(self.path, self.name, start, end)
            # Files of different byte order must give shards of one type.
            native: Array = found.astype(found.dtype.newbyteorder("="), copy=False)
            if (native.shape, native.dtype) != ((end - start, *self.shape[1:]), self.dtype):
                raise ValueError("the file changed while it was read")
            return native


def find_arrays(path: Path, key: str, unwritten: Unwritten = "error") -> list[FileArray]:
    """Return the array `key`, or the arrays in the group `key` sorted by name; only headers are read.

    The only array of an NPY file is returned for any key. Raises UserError if the file has no `key`, or if it
    is too small for the shapes and types that its headers declare.
    """
    key = key.strip("/")
    with _with_path_in_errors(path):
        form = _format(path)
        found = form.find(path, key, unwritten)
        if not found:
            names = form.names(path)
            shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            raise UserError(
                f"{path}: no array or group {key!r} (found: {shown or 'none'}); correct the name in data.reader; the files of all splits need the same names"
            )
        return [
            FileArray(path, name, shape, dtype.newbyteorder("=")) for name, (shape, dtype) in found.items()
        ]


def is_array_file(path: Path) -> bool:
    """Return True if the file has the suffix of an array file or starts with the bytes of one."""
    with _with_path_in_errors(path):
        return path.suffix.lower() in ARRAY_SUFFIXES or _detected_format(path) is not None


def is_npy(path: Path) -> bool:
    """Return True if the file is an NPY file (a single array without a name), or a damaged one."""
    with _with_path_in_errors(path):
        return path.suffix == ".npy" or _detected_format(path) is NPY


def refuse_other_file(path: Path) -> None:
    """Raise UserError with what the file is if its first bytes are those of another format."""
    with path.open("rb") as file:
        start = file.read(32).lstrip(b"\xef\xbb\xbf \r\n")
    for first, (kind, remedy) in OTHER_FILES.items():
        if start.startswith(first):
            raise UserError(f"{path}: {kind}, not an HDF5, NPZ or NPY file; {remedy}")


@contextmanager
def _with_path_in_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # h5py, zipfile and numpy raise many types of exceptions for damaged files
        reason = str(error) or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason}); create, download or copy it again") from error


def _format(path: Path) -> ArrayFileFormat:
    form = _detected_format(path)
    if form is None:
        refuse_other_file(path)
        raise ValueError("not an HDF5, NPZ or NPY file")
    return form


def _detected_format(path: Path) -> ArrayFileFormat | None:
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return NPY
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return NPZ
    return HDF5 if h5py.is_hdf5(path) else None  # is_hdf5 also finds the signature after MATLAB's user block
