"""One file of the store: named arrays, uncompressed and contiguous, to be memory-mapped."""

import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import h5py
import numpy as np

from nnlo_lib.data.readers.array_formats import open_hdf5
from nnlo_lib.data.readers.base import Array
from nnlo_lib.data.store_settings import ShardFormat as ShardFormat

SHARD_SUFFIXES: dict[ShardFormat, str] = {"hdf5": ".h5", "npz": ".npz"}
ALIGNMENT_BYTES = 64  # of arrays in HDF5 files; numpy copies slowly from arrays not aligned to their type


def write_shard(path: Path, format: ShardFormat, arrays: Mapping[str, Array]) -> None:
    """Write one shard; equal arrays give equal bytes. Raises OSError if the file system reports an error."""
    if format == "hdf5":
        with (
            DeferredErrorFile(path) as output,
            h5py.File(output, "w", alignment_threshold=1, alignment_interval=ALIGNMENT_BYTES) as file,
        ):
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
    else:
        # np.savez would append .npz to the name of a temporary file; it leaves an open file's name alone.
        with path.open("wb") as plain:
            np.savez(plain, **arrays)  # type: ignore[arg-type]


class DeferredErrorFile:
    """New binary file whose write errors wait for the end of the `with` block.

    HDF5 crashes the process if it cannot flush a file that it closes (segmentation fault). Therefore each write seems
    to succeed, and the end of the block raises the first OSError.
    """

    def __init__(self, path: Path) -> None:
        # Unbuffered, so that an error belongs to a write and none is left for the end.
        self._file = path.open("wb+", buffering=0)
        self._error: OSError | None = None

    def __enter__(self) -> "DeferredErrorFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        # After a failed write, an exception of the library is a consequence.
        if self._error is not None:
            raise self._error

    def write(self, content: memoryview) -> int:
        """Write at the current position; after the first error, do nothing."""
        written = 0
        try:
            # One system call writes at most 2 GiB, and less if the disk becomes full.
            while self._error is None and written < len(content):
                written += self._file.write(content[written:])
        except OSError as error:
            self._error = error
        return len(content)

    def truncate(self, size: int) -> None:
        """Set the length of the file; after the first error, do nothing."""
        try:
            if self._error is None:
                self._file.truncate(size)
        except OSError as error:
            self._error = error

    def read(self, size: int = -1) -> bytes:
        """Return bytes that were written; h5py recognizes an open file by this method."""
        return self._file.read(size) or b""

    def readinto(self, buffer: memoryview) -> int:
        """Read bytes that were written."""
        return self._file.readinto(buffer) or 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the current position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the current position."""
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: no write is buffered."""


def map_shard(path: Path, names: Sequence[str]) -> list[Array]:
    """Return the named arrays as read-only views of the file. Errors of a damaged file are not caught."""
    # Plain arrays: each slice of a np.memmap would be another np.memmap object.
    return [
        np.asarray(np.memmap(path, dtype=place.dtype, mode="r", offset=place.offset, shape=place.shape))
        for place in LOCATORS[path.suffix](path, names)
    ]


class ArrayLocation(NamedTuple):
    """Position of an array in a file (`offset` in bytes), its shape and its type."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _in_hdf5(path: Path, names: Sequence[str]) -> list[ArrayLocation]:
    with open_hdf5(path) as file:
        datasets = [file[name] for name in names]
        found = [ArrayLocation(each.id.get_offset(), each.shape, each.dtype) for each in datasets]
    for name, place in zip(names, found, strict=True):
        if place.offset is None:
            raise ValueError(f"{name} is chunked or compressed, so it cannot be memory-mapped")
    return found


def _in_npz(path: Path, names: Sequence[str]) -> list[ArrayLocation]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        return [_in_member(archive.getinfo(f"{name}.npy"), file) for name in names]


def _in_member(member: zipfile.ZipInfo, file: Any) -> ArrayLocation:
    """Return the location of a member's array.

    The npy header follows the local header (30 bytes, name, extra field).
    """
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed, so it cannot be memory-mapped")
    file.seek(member.header_offset)
    name, extra = struct.unpack("<26x2H", file.read(30))
    file.seek(name + extra, 1)
    version = np.lib.format.read_magic(file)
    # np.save writes version 1.0 unless the header is larger than 64 KiB or has names beyond Latin-1.
    if version != (1, 0):
        raise ValueError(f"{member.filename} has the NPY version {version} instead of (1, 0)")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran or dtype.hasobject:
        raise ValueError(f"{member.filename} is not a plain array in C order")
    return ArrayLocation(file.tell(), shape, dtype)


LOCATORS: dict[str, Callable[[Path, Sequence[str]], list[ArrayLocation]]] = {".h5": _in_hdf5, ".npz": _in_npz}
