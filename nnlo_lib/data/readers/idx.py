"""Reader of data sets in the layout of MNIST: four IDX files, plain or gzipped.

The name of a file ends with the number of dimensions and the type, such as idx3-ubyte; the header must agree.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock, shard_ranges
from nnlo_lib.data.readers.idx_file import TYPES, IdxFile, open_idx

SPLITS = {"train": "train", "test": "t10k|test"}


def read(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of the four files of an MNIST-like set; (n, height, width) become (n, 1, height, width)."""
    units = [unit for split, prefix in SPLITS.items() for unit in _units(folder, split, prefix, shard_size)]
    return DatasetContents(tuple(units))


def _units(folder: Path, split: str, prefix: str, shard_size: int) -> Iterator[ConversionUnit]:
    images, labels = (
        _find(folder, prefix, "images", "idx3-ubyte"),
        _find(folder, prefix, "labels", "idx1-ubyte"),
    )
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
    for name, start, end in shard_ranges(split, labels.shape[0], shard_size, images.record_bytes):
        block = partial(_block, images, labels, start, end)
        yield ConversionUnit(split, name, labels.path, block, files=(images.path, labels.path))


def _find(folder: Path, prefix: str, content: str, usual: str) -> IdxFile:
    """Return the only file of a split with this content.

    Args:
        folder: folder of the files.
        prefix: first words of the names of the files of the split, separated by |.
        content: images or labels.
        usual: end of the usual file name, for the error message.
    """
    pattern = re.compile(rf"({prefix})-{content}[-.]idx(\d)-({'|'.join(TYPES)})(\.gz)?")
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = {path.name.removesuffix(".gz"): path for path in paths if pattern.fullmatch(path.name)}
    if not found:
        name = f"{prefix.partition('|')[0]}-{content}-{usual}.gz"
        raise UserError(f"{folder / name}: file not found; fetch it with scripts/fetch.py")
    if len(found) > 1:
        raise UserError(f"{folder}: several files of one kind: {', '.join(found)}; keep one of the files")
    (path,) = found.values()
    match = cast(re.Match[str], pattern.fullmatch(path.name))
    return open_idx(path, int(match[2]), match[3])


def _block(images: IdxFile, labels: IdxFile, start: int, end: int) -> SampleBlock:
    values = images.records(start, end)
    if values.dtype.kind == "i":
        # Layers of floats take no integers; each of these integers is a float exactly. Bytes are scaled later.
        values = values.astype(np.result_type(values.dtype, np.float32))
    # Images without an axis of channels get one.
    inputs = values[:, np.newaxis] if values.ndim == 3 else values
    return SampleBlock((inputs,), labels.records(start, end).astype(np.int64))
