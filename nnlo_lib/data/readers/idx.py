"""Reader of the IDX format of MNIST and similar data sets, plain or gzipped.

An IDX file has two zero bytes, one byte for the type (8: unsigned byte), one for the number of dimensions,
each dimension as a big-endian 32-bit integer, then the values in C order.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.gzip_content import (
    CONTENT_CHUNK_BYTES,
    DEFLATE_LIMIT,
    find_plain_or_gzip,
    is_gzip,
    open_decompressed,
)
from nnlo_lib.data.readers import Array, ConversionUnit, DatasetContents, SampleBlock, shard_ranges

SPLITS = {"train": "train", "test": "t10k"}
UNSIGNED_BYTE = 8


@dataclass(frozen=True)
class IdxFile:
    """An IDX file of unsigned bytes with a checked header: `shape[0]` records of shape `shape[1:]`."""

    path: Path
    shape: tuple[int, ...]

    @property
    def header(self) -> int:
        """Size of the header in bytes."""
        return 4 + 4 * len(self.shape)

    def records(self, start: int, end: int) -> Array:
        """Return records start..end-1 as uint8 (end - start, *shape[1:]).

        Raises UserError if the file is truncated or, when the last record is read, too long.
        """
        size = math.prod(self.shape[1:])
        with open_decompressed(self.path) as stream:
            _skip(stream, self.header + start * size)
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
        return np.frombuffer(values, dtype=np.uint8).reshape(end - start, *self.shape[1:])


def read(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of the four files of an MNIST-like set; images become (n, 1, height, width)."""
    units = [unit for split, prefix in SPLITS.items() for unit in _units(folder, split, prefix, shard_size)]
    return DatasetContents(tuple(units))


def open_idx(path: Path, dimensions: int) -> IdxFile:
    """Return the IDX file. Raises UserError if its header is wrong or does not fit the file size."""
    with open_decompressed(path) as stream:
        start, sizes = stream.read(4), stream.read(4 * dimensions)
    if start != bytes((0, 0, UNSIGNED_BYTE, dimensions)) or len(sizes) < 4 * dimensions:
        raise UserError(
            f"{path}: not an IDX file of bytes in {dimensions} dimensions (starts with "
            f"{start.hex(' ')}, expected 00 00 08 {dimensions:02x}); download or copy it again"
        )
    idx = IdxFile(path, struct.unpack(f">{dimensions}I", sizes))
    # Before any allocation, because a damaged header can declare terabytes.
    declared, held = idx.header + math.prod(idx.shape), path.stat().st_size
    if declared > held * DEFLATE_LIMIT if is_gzip(path) else declared != held:
        raise UserError(
            f"{path}: the header declares {declared:,} bytes, but the file has {held:,}; download or copy it again"
        )
    return idx


def _units(folder: Path, split: str, prefix: str, shard_size: int) -> Iterator[ConversionUnit]:
    images = open_idx(_find(folder, f"{prefix}-images-idx3-ubyte.gz"), 3)
    labels = open_idx(_find(folder, f"{prefix}-labels-idx1-ubyte.gz"), 1)
    if images.shape[0] != labels.shape[0]:
        raise UserError(
            f"{images.path}: {images.shape[0]} images, but {labels.path} has {labels.shape[0]} labels; "
            f"download or copy both files from the same source"
        )
    for name, start, end in shard_ranges(split, labels.shape[0], shard_size, math.prod(images.shape[1:])):
        block = partial(_block, images, labels, start, end)
        yield ConversionUnit(split, name, labels.path, block, files=(images.path, labels.path))


def _find(folder: Path, name: str) -> Path:
    path = find_plain_or_gzip(folder, name)
    if path is None:
        raise UserError(f"{folder / name}: file not found; fetch it with scripts/fetch.py")
    return path


def _block(images: IdxFile, labels: IdxFile, start: int, end: int) -> SampleBlock:
    pixels = images.records(start, end)[:, np.newaxis]
    return SampleBlock((pixels,), labels.records(start, end).astype(np.int64))


def _skip(stream: BinaryIO, count: int) -> None:
    while count and (passed := len(stream.read(min(count, CONTENT_CHUNK_BYTES)))):
        count -= passed
