"""Access by row range to NumPy's files: NPY with one array, and NPZ, a ZIP of named NPYs."""

import io
import math
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np

from nnlo_lib.data.fetch.gzip_content import CONTENT_CHUNK_BYTES
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_kind import ArrayHeader, block_rows, refuse_bomb

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def find_npy(path: Path, key: str) -> dict[str, ArrayHeader]:
    """Return the header of an NPY's only array under the name `key`: the array has no name of its own."""
    with path.open("rb") as stream:
        return {key: _header(stream, path.stat().st_size)[0]}


def npy_blocks(path: Path, name: str, start: int, end: int) -> Iterator[Array]:
    """Yield rows start..end-1 of an NPY in blocks.

    Args:
        path: NPY file.
        name: not used; an NPY holds a single array.
        start: first row.
        end: last row + 1.
    """
    with path.open("rb") as stream:
        yield from _blocks(stream, path.stat().st_size, start, end)


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays of an NPZ, sorted like nested groups."""
    with zipfile.ZipFile(path) as archive:
        names = (name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
        return sorted(names, key=lambda name: name.split("/"))


def find_npz(path: Path, key: str) -> dict[str, ArrayHeader]:
    """Return the array `key`, or the arrays `key/...` sorted by name; empty if neither exists."""
    names = npz_names(path)
    wanted = [key] if key in names else [name for name in names if name.startswith(f"{key}/")]
    return {name: _kind_in_npz(path, name) for name in wanted}


def npz_blocks(path: Path, name: str, start: int, end: int) -> Iterator[Array]:
    """Yield rows start..end-1 of an array of an NPZ in blocks.

    A compressed array is unpacked from its start in pieces. A call that includes the last row also verifies
    the checksum of the whole array.

    Args:
        path: NPZ file.
        name: name of the array in the file.
        start: first row.
        end: last row + 1.
    """
    if end == _kind_in_npz(path, name).shape[0]:
        _compare_checksum(path, name)
    with _opened(path, name) as (stream, member):
        yield from _blocks(stream, member.file_size, start, end)


def _kind_in_npz(path: Path, name: str) -> ArrayHeader:
    with _opened(path, name) as (stream, member):
        kind, _ = _header(stream, member.file_size)
    # The compressed size comes from the directory of the ZIP, which can be wrong, but cannot exceed the file.
    refuse_bomb(name, kind.bytes, min(member.compress_size, path.stat().st_size))
    return kind


@contextmanager
def _opened(path: Path, name: str) -> Iterator[tuple[io.BufferedIOBase, zipfile.ZipInfo]]:
    """Open one NPY of an NPZ; an uncompressed NPY is opened in the file itself, so that seeking is cheap."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type not in METHODS:
            raise ValueError(f"{name} is compressed by a method other than deflate, the method of NumPy")
        if member.compress_type == zipfile.ZIP_STORED:
            file.seek(member.header_offset)
            before = struct.unpack("<26x2H", file.read(30))  # lengths of the name and of the extra field
            file.seek(sum(before), io.SEEK_CUR)
            yield file, member
        else:
            with archive.open(member) as stream:
                yield cast(io.BufferedIOBase, stream), member


def _compare_checksum(path: Path, name: str) -> None:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        # zipfile compares the checksum when the end of a member is reached.
        while stream.read(CONTENT_CHUNK_BYTES):
            pass


def _header(stream: io.BufferedIOBase, size: int) -> tuple[ArrayHeader, bool]:
    """Return the header of an NPY of `size` bytes, and True if its values are in Fortran order.

    Raises ValueError if the header does not fit the size.
    """
    begin = stream.tell()
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    kind, held = ArrayHeader(shape, dtype), size - (stream.tell() - begin)
    if min(shape, default=0) < 0:
        raise ValueError(f"the header declares the shape {shape}, which has a negative length")
    # Arrays of objects have no fixed size; open_source refuses them by their type.
    if kind.bytes != held and not dtype.hasobject:
        raise ValueError(f"the header declares {kind.bytes:,} bytes of values, but {held:,} are stored")
    return kind, fortran


def _blocks(stream: io.BufferedIOBase, size: int, start: int, end: int) -> Iterator[Array]:
    """Yield a range of rows in blocks in C order, and at once in Fortran order.

    Args:
        stream: stream at the start of the NPY.
        size: size of the NPY in bytes.
        start: first row.
        end: last row + 1.
    """
    kind, fortran = _header(stream, size)
    if fortran:
        yield _columns(stream, kind, start, end)
        return
    stream.seek(start * math.prod(kind.shape[1:]) * kind.dtype.itemsize, io.SEEK_CUR)
    step = block_rows(kind)
    for first in range(start, end, step):
        rows = np.empty((min(step, end - first), *kind.shape[1:]), kind.dtype)
        _fill(stream, rows)
        yield rows


def _columns(stream: io.BufferedIOBase, kind: ArrayHeader, start: int, end: int) -> Array:
    """Return a range of rows of an array in Fortran order, in which the values of a column are contiguous.

    Args:
        stream: stream at the first value.
        kind: shape and type of the whole array.
        start: first row.
        end: last row + 1.
    """
    begin, item = stream.tell(), kind.dtype.itemsize
    columns = np.empty((math.prod(kind.shape[1:]), end - start), kind.dtype)
    for index, column in enumerate(columns):
        stream.seek(begin + (index * kind.shape[0] + start) * item)
        _fill(stream, column)
    return columns.reshape(*kind.shape[:0:-1], end - start).T


def _fill(stream: io.BufferedIOBase, values: Array) -> None:
    into = values.reshape(-1).view(np.uint8)
    if stream.readinto(into.data) < len(into):
        raise ValueError("the file is truncated")
