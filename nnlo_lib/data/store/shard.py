"""One file of the store: named arrays, uncompressed and contiguous, to be memory-mapped."""

import io
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from nnlo_lib.data.readers.array_formats import open_hdf5
from nnlo_lib.data.readers.base import Array
from nnlo_lib.data.store_settings import ShardFormat as ShardFormat

SHARD_SUFFIXES: dict[ShardFormat, str] = {"hdf5": ".h5", "npz": ".npz"}
ALIGNMENT_BYTES = 64  # of arrays in HDF5 files; numpy copies slowly from arrays not aligned to their type
Place = tuple[int, tuple[int, ...], np.dtype[Any]]  # of an array: offset in bytes, shape and type


def write_shard(path: Path, format: ShardFormat, arrays: Mapping[str, Array]) -> None:
    """Write one shard; equal arrays give equal bytes. Raises OSError if the file system reports an error."""
    if format == "hdf5":
        with (
            DeferredErrorFile(path, "wb+") as output,
            h5py.File(output, "w", alignment_threshold=1, alignment_interval=ALIGNMENT_BYTES) as file,
        ):
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
    else:
        # np.savez would append .npz to the name of a temporary file; it leaves an open file's name alone.
        with path.open("wb") as plain:
            np.savez(plain, **arrays)  # type: ignore[arg-type]


class DeferredErrorFile(io.FileIO):
    """Binary file whose write errors wait for the end of the `with` block.

    HDF5 crashes the process if it cannot flush a file that it closes (segmentation fault). Therefore each write seems
    to succeed, and the end of the block raises the first OSError.
    """

    error: OSError | None = None

    def __exit__(self, *_: object) -> None:
        self.close()
        # After a failed write, an exception of the library is a consequence.
        if self.error is not None:
            raise self.error

    def write(self, content: Any) -> int:
        """Write at the current position; after the first error, do nothing."""
        written = 0
        try:
            # One system call writes at most 2 GiB, and less if the disk becomes full.
            while self.error is None and written < len(content):
                written += super().write(content[written:])
        except OSError as error:
            self.error = error
        return len(content)

    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file; after the first error, do nothing."""
        try:
            return super().truncate(size) if self.error is None else 0
        except OSError as error:
            self.error = error
            return 0


def map_shard(path: Path, names: Sequence[str]) -> list[Array]:
    """Return the named arrays as read-only views of the file. Errors of a damaged file are not caught."""
    # Plain arrays: each slice of a np.memmap would be another np.memmap object.
    return [
        np.asarray(np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape))
        for offset, shape, dtype in PLACES[path.suffix](path, names)
    ]


def _in_hdf5(path: Path, names: Sequence[str]) -> Iterator[Place]:
    with open_hdf5(path) as file:
        for name in names:
            offset = file[name].id.get_offset()
            if offset is None:
                raise ValueError(f"{name} is chunked or compressed, so it cannot be memory-mapped")
            yield offset, file[name].shape, file[name].dtype


def _in_npz(path: Path, names: Sequence[str]) -> Iterator[Place]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in (archive.getinfo(f"{name}.npy") for name in names):
            # The npy header follows the local header (30 bytes, name, extra field).
            file.seek(member.header_offset)
            file.seek(sum(struct.unpack("<26x2H", file.read(30))), io.SEEK_CUR)
            np.lib.format.read_magic(file)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            if member.compress_type != zipfile.ZIP_STORED or fortran:
                raise ValueError(
                    f"{member.filename} is compressed or in Fortran order, so it cannot be memory-mapped"
                )
            yield file.tell(), shape, dtype


PLACES: dict[str, Callable[[Path, Sequence[str]], Iterator[Place]]] = {".h5": _in_hdf5, ".npz": _in_npz}
