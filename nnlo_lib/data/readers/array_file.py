"""Files of named arrays - HDF5, NPZ, NPY - whose rows are read by range, whatever the size of the whole."""

import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from nnlo_lib.data.readers import Array
from nnlo_lib.errors import UserError

DEFLATE_LIMIT = 1040  # deflate cannot make its input grow by more than about this
CHUNK = 1 << 20
DAMAGED = (
    OSError, KeyError, ValueError, TypeError, RuntimeError, EOFError, OverflowError, MemoryError, SyntaxError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """An array in a file: the shape of all of it, and its type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


def kinds(path: Path) -> dict[str, Kind]:
    """Return the arrays of a file by name, nested groups as group/name; of an NPY the one named "".

    Only headers are read, and what they declare is checked against the file. Raises UserError if it is damaged.
    """
    with _blamed(path):
        return _format(path)[0](path)


def rows(path: Path, name: str, start: int, end: int) -> Array:
    """Read rows start..end-1 of an array, in native byte order. Raises UserError if the file is damaged."""
    with _blamed(path):
        array = _format(path)[1](path, name, start, end)
        return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}); make it or get it again") from error


def _hdf5_kinds(path: Path) -> dict[str, Kind]:
    found = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = kind = Kind(item.shape or (), item.dtype)
            _refuse_bomb(name, kind, item.id.get_storage_size())

    with h5py.File(path, "r", locking=False) as file:
        file.visititems(note)
    return found


def _hdf5_rows(path: Path, name: str, start: int, end: int) -> Array:
    with h5py.File(path, "r", locking=False) as file:
        return np.asarray(file[name][start:end])


def _npz_kinds(path: Path) -> dict[str, Kind]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                kind, _ = _header(stream, member.file_size)
            name = member.filename.removesuffix(".npy")
            _refuse_bomb(name, kind, member.compress_size)
            found[name] = kind
    return found


def _npz_rows(path: Path, name: str, start: int, end: int) -> Array:
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        with archive.open(member) as stream:
            return _npy_rows_of(stream, member.file_size, start, end)


def _npy_kinds(path: Path) -> dict[str, Kind]:
    with path.open("rb") as stream:
        return {"": _header(stream, path.stat().st_size)[0]}


def _npy_rows(path: Path, name: str, start: int, end: int) -> Array:
    with path.open("rb") as stream:
        return _npy_rows_of(stream, path.stat().st_size, start, end)


def _header(stream: IO[bytes], size: int) -> tuple[Kind, bool]:
    """Read an NPY header; return what it declares, and whether the values are in Fortran's order."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    kind = Kind(shape, dtype)
    if dtype.hasobject or stream.tell() + kind.bytes != size:
        raise ValueError(f"declares {kind.bytes:,} bytes of {dtype}, which it does not hold")
    return kind, fortran


def _npy_rows_of(stream: IO[bytes], size: int, start: int, end: int) -> Array:
    """Read some rows and pass over the others, so that a compressed array needs no more memory than they."""
    kind, fortran = _header(stream, size)
    if fortran and len(kind.shape) > 1:
        whole = np.frombuffer(stream.read(kind.bytes), kind.dtype)
        return whole.reshape(kind.shape[::-1]).T[start:end]
    width = math.prod(kind.shape[1:]) * kind.dtype.itemsize
    _pass(stream, start * width)
    values = stream.read((end - start) * width)
    _pass(stream, (kind.shape[0] - end) * width + 1)  # to the end, where a ZIP's checksum is compared
    return np.frombuffer(values, kind.dtype).reshape(end - start, *kind.shape[1:])


def _pass(stream: IO[bytes], count: int) -> None:
    while count and (passed := len(stream.read(min(count, CHUNK)))):
        count -= passed


def _refuse_bomb(name: str, kind: Kind, stored: int) -> None:
    if kind.bytes > stored * DEFLATE_LIMIT:
        raise ValueError(f"{name} declares {kind.bytes:,} bytes but has {stored:,}")


FORMATS: dict[bytes, tuple[Callable[[Path], dict[str, Kind]], Callable[[Path, str, int, int], Array]]] = {
    b"\x89HDF\r\n\x1a\n": (_hdf5_kinds, _hdf5_rows),
    b"PK\x03\x04": (_npz_kinds, _npz_rows),
    b"\x93NUMPY": (_npy_kinds, _npy_rows),
}


def _format(path: Path) -> tuple[Callable[[Path], dict[str, Kind]], Callable[[Path, str, int, int], Array]]:
    with path.open("rb") as file:
        start = file.read(8)
    for magic, functions in FORMATS.items():
        if start.startswith(magic):
            return functions
    raise ValueError("it is neither HDF5 nor NPZ nor NPY")
