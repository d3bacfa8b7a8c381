"""Reader `idx` of data sets in the layout of MNIST: four IDX files, plain or gzipped.

An IDX file has two zero bytes, one byte for the type (8: unsigned byte), one for the number of dimensions,
each dimension as a big-endian 32-bit integer, then the values in C order, big-endian.

The name of a file ends with the number of dimensions and the type, such as idx3-ubyte; the header must agree.
"""

import math
import re
import struct
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import DEFLATE_LIMIT, is_gzip, open_decompressed
from nnlo_lib.data.fetch.record import Stamp, stamp_of
from nnlo_lib.data.readers.base import Array, ConversionUnit, DatasetContents, SampleBlock, shard_ranges

# Code in the header and type of the values, by the last word of the file name.
TYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "ubyte": (0x08, np.dtype(np.uint8)),
    "byte": (0x09, np.dtype(np.int8)),
    "short": (0x0B, np.dtype(">i2")),
    "int": (0x0C, np.dtype(">i4")),
    "float": (0x0D, np.dtype(">f4")),
    "double": (0x0E, np.dtype(">f8")),
}
SPLITS = {"train": "train", "test": "t10k|test"}  # first words of the names of the files


@dataclass(frozen=True)
class IdxFile:
    """An IDX file with a checked header: `shape[0]` records of shape `shape[1:]`."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def values(self) -> Array:
        """All records. Raises UserError if the file has fewer or more values than its header declares."""
        return _values(self, stamp_of(self.path))


# Two, because a shard needs images and labels, and the next shard the same files.
@lru_cache(maxsize=2)
def _values(idx: IdxFile, _version: Stamp) -> Array:
    size = math.prod(idx.shape) * idx.dtype.itemsize
    with open_decompressed(idx.path) as stream:
        stream.read(4 + 4 * len(idx.shape))
        # One byte more than declared also lets gzip compare the checksum at the end of its stream.
        content = stream.read(size + 1)
    if len(content) != size:
        found = "more" if len(content) > size else "truncated, fewer"
        raise UserError(
            f"{idx.path}: {found} values than the header declares {idx.shape}; download or copy it again"
        )
    return (
        np.frombuffer(content, idx.dtype).astype(idx.dtype.newbyteorder("="), copy=False).reshape(idx.shape)
    )


def open_idx(path: Path, dimensions: int, kind: str = "ubyte") -> IdxFile:
    """Return the IDX file of `kind`, a key of TYPES. Raises UserError if its header is wrong or does not fit the size."""
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
    declared, held = 4 + 4 * dimensions + math.prod(idx.shape) * dtype.itemsize, path.stat().st_size
    if declared > held * DEFLATE_LIMIT if is_gzip(path) else declared != held:
        raise UserError(
            f"{path}: the header declares {declared:,} bytes, but the file has {held:,}; download or copy it again"
        )
    return idx


def read(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of the four files of an MNIST-like set; (n, height, width) become (n, 1, height, width)."""
    units, lowest = list[ConversionUnit](), 1
    for split, prefix in SPLITS.items():
        images = _find(folder, prefix, "images", "idx3-ubyte")
        labels = _find(folder, prefix, "labels", "idx1-ubyte")
        if len(images.shape) < 2 or len(labels.shape) != 1 or labels.dtype.kind == "f":
            raise UserError(
                f"{images.path}, {labels.path}: values of shape {images.shape} and labels {labels.dtype} of shape "
                f"{labels.shape}; labels must be integers in 1 dimension, images or rows of features need 2 or more"
            )
        if images.shape[0] != labels.shape[0]:
            raise UserError(
                f"{images.path}: {images.shape[0]} images, but {labels.path} has {labels.shape[0]} labels; "
                f"download or copy both files from the same source"
            )
        size, files = math.prod(images.shape[1:]) * images.dtype.itemsize, (images.path, labels.path)
        units += (
            ConversionUnit(split, name, labels.path, partial(_block, images, labels, start, end), files=files)
            for name, start, end in shard_ranges(split, labels.shape[0], shard_size, size)
        )
        lowest = min(lowest, int(labels.values.min(initial=1)))
    # The letters of EMNIST are counted from 1; a class 0 without a sample would be learned, too.
    return DatasetContents(tuple(units), first_class=max(0, lowest))


def _find(folder: Path, prefix: str, content: str, usual: str) -> IdxFile:
    """Return the only file of a split with this content, images or labels; `usual` is the end of its name, for the error message."""
    pattern = re.compile(rf"({prefix})-{content}[-.]idx(\d)-({'|'.join(TYPES)})(\.gz)?")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    found = {name.removesuffix(".gz"): match for name in names if (match := pattern.fullmatch(name))}
    if not found:
        others = ", ".join(name for name in names if "idx" in name)
        remedy = (
            f"rename the file with this content: {others}" if others else "fetch it with `nnlo task fetch`"
        )
        name = f"{prefix.partition('|')[0]}-{content}-{usual}.gz"
        raise UserError(f"{folder / name}: file not found; {remedy}")
    if len(found) > 1:
        raise UserError(f"{folder}: several files of one kind: {', '.join(found)}; keep one of the files")
    (match,) = found.values()
    return open_idx(folder / match.string, int(match[2]), match[3])


def _block(images: IdxFile, labels: IdxFile, start: int, end: int) -> SampleBlock:
    values = images.values[start:end]
    if values.dtype.kind == "i":
        # Layers of floats take no integers; each of these integers is a float exactly. Bytes are scaled later.
        values = values.astype(np.result_type(values.dtype, np.float32))
    # Images without an axis of channels get one.
    inputs = values[:, np.newaxis] if values.ndim == 3 else values
    return SampleBlock((inputs,), labels.values[start:end].astype(np.int64))
