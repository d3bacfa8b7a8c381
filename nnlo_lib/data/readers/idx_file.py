"""The IDX format, plain or gzipped.

An IDX file has two zero bytes, one byte for the type (8: unsigned byte), one for the number of dimensions,
each dimension as a big-endian 32-bit integer, then the values in C order, big-endian.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.gzip_content import DEFLATE_LIMIT, is_gzip, open_at, open_decompressed
from nnlo_lib.data.readers import Array

# Code in the header and type of the values, by the last word of the file name.
TYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "ubyte": (0x08, np.dtype(np.uint8)),
    "byte": (0x09, np.dtype(np.int8)),
    "short": (0x0B, np.dtype(">i2")),
    "int": (0x0C, np.dtype(">i4")),
    "float": (0x0D, np.dtype(">f4")),
    "double": (0x0E, np.dtype(">f8")),
}


@dataclass(frozen=True)
class IdxFile:
    """An IDX file with a checked header: `shape[0]` records of shape `shape[1:]`."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def header(self) -> int:
        """Size of the header in bytes."""
        return 4 + 4 * len(self.shape)

    @property
    def record_bytes(self) -> int:
        """Size of a record in bytes."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def records(self, start: int, end: int) -> Array:
        """Return records start..end-1 as an array (end - start, *shape[1:]).

        Raises UserError if the file is truncated or, when the last record is read, too long.
        """
        size = self.record_bytes
        with open_at(self.path, self.header + start * size) as stream:
            values = stream.read((end - start) * size)
            # Reading beyond the last value also lets gzip compare the checksum at the end of its stream.
            if end == self.shape[0] and stream.read(1):
                raise UserError(
                    f"{self.path}: more values than the header declares {self.shape}; download or copy it again"
                )
        if len(values) < (end - start) * size:
            raise UserError(
                f"{self.path}: truncated, fewer values than the header declares {self.shape}; download or copy it again"
            )
        native = self.dtype.newbyteorder("=")
        return (
            np.frombuffer(values, self.dtype).astype(native, copy=False).reshape(end - start, *self.shape[1:])
        )


def open_idx(path: Path, dimensions: int, kind: str = "ubyte") -> IdxFile:
    """Return the IDX file. Raises UserError if its header is wrong or does not fit the file size.

    Args:
        path: the file.
        dimensions: expected number of dimensions.
        kind: expected type of the values, a key of TYPES.
    """
    with open_decompressed(path) as stream:
        start, sizes = stream.read(4), stream.read(4 * dimensions)
    code, dtype = TYPES[kind]
    if start != bytes((0, 0, code, dimensions)) or len(sizes) < 4 * dimensions:
        raise UserError(
            f"{path}: not an IDX file of the type {kind} in {dimensions} dimensions (starts with "
            f"{start.hex(' ')}, expected 00 00 {code:02x} {dimensions:02x}); download or copy it again, or correct the "
            f"end of its name, idx{dimensions}-{kind}"
        )
    idx = IdxFile(path, struct.unpack(f">{dimensions}I", sizes), dtype)
    # Before any allocation, because a damaged header can declare terabytes.
    declared, held = idx.header + math.prod(idx.shape) * dtype.itemsize, path.stat().st_size
    if declared > held * DEFLATE_LIMIT if is_gzip(path) else declared != held:
        raise UserError(
            f"{path}: the header declares {declared:,} bytes, but the file has {held:,}; download or copy it again"
        )
    return idx
