"""Reader of CIFAR-10 and CIFAR-100, in the binary or the python layout.

A binary record is one label byte (CIFAR-100: coarse, then fine) and 3 x 32 x 32 pixels. The python layout has pickles,
of which only arrays and built-in values are created.
"""

import io
import pickle
import struct
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import is_visible
from nnlo_lib.data.fetch.record import FileVersion, file_version
from nnlo_lib.data.readers.base import (
    Array,
    ConversionUnit,
    DatasetContents,
    Labels,
    SampleBlock,
    shard_ranges,
)

PIXELS = 3 * 32 * 32
IMAGE = (3, 32, 32)
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
FIRST = ("data_batch_1.bin", "train.bin", "data_batch_1", "train")  # one of these is present in each layout
CLASSES = {"labels": 10, "fine_labels": 100, "coarse_labels": 20}
LabelKind = Literal["fine", "coarse"]
DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, UnicodeError, AssertionError, struct.error)  # fmt: skip


@dataclass(frozen=True)
class CifarFile:
    """One file of CIFAR records.

    Attributes:
        labels: number of label bytes of a binary record; 0 for the python layout.
        label: index of the label byte that is used.
    """

    path: Path
    count: int
    labels: int
    label: int
    key: str

    def read(self, start: int, end: int) -> SampleBlock:
        """Return records start..end-1. Raises UserError if a label is not a class or the file is gone."""
        try:
            block = self._read(start, end)
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error
        for wrong in np.flatnonzero((block.labels < 0) | (block.labels >= CLASSES[self.key]))[:1]:
            raise UserError(
                f"{self.path}: record {start + wrong} has label {block.labels[wrong]}, but the `{self.key}` of CIFAR "
                f"are 0..{CLASSES[self.key] - 1}; download or copy the file again"
            )
        return block

    @property
    def lowest(self) -> int:
        """Lowest label of the file."""
        return int(self._read(0, self.count).labels.min(initial=1))

    def _read(self, start: int, end: int) -> SampleBlock:
        if not self.labels:
            pixels, labels = _kept_batch(self.path, self.key, file_version(self.path))
            return SampleBlock((pixels[start:end].reshape(-1, *IMAGE),), labels[start:end])
        width = self.labels + PIXELS
        rows = np.fromfile(self.path, np.uint8, (end - start) * width, offset=start * width).reshape(
            -1, width
        )
        images = rows[:, self.labels :].reshape(-1, *IMAGE)
        return SampleBlock((images,), rows[:, self.label].astype(np.int64))


@lru_cache(maxsize=1)
def _kept_batch(path: Path, key: str, _version: FileVersion) -> tuple[Array, Labels]:
    """Return a batch of one version of a file, which is unpickled once for all consecutive shards from the batch."""
    return load_batch(path, key)


def read(folder: Path, shard_size: int, *, labels: LabelKind = "fine") -> DatasetContents:
    """Return the contents of `folder`, or of its only subfolder; files may have any number of records.

    `labels` are the labels of CIFAR-100 to use: fine (100 classes) or coarse (20 classes).
    """
    if not any((folder / name).is_file() for name in FIRST) and folder.is_dir():
        folders = [path for path in folder.iterdir() if path.is_dir() and is_visible(path.name)]
        folder = folders[0] if len(folders) == 1 else folder
    splits = _splits(folder, labels)
    units = [
        ConversionUnit(
            split,
            name,
            batches[0].path,
            partial(_block, batches, start, end),
            files=tuple(batch.path for batch in batches),
        )
        for split, batches in splits.items()
        for name, start, end in shard_ranges(split, sum(batch.count for batch in batches), shard_size, PIXELS)
    ]
    names = _class_names(folder, labels)
    # As in readers.idx: a class 0 without a sample would be learned, too. Names say which class is the first.
    first_class = 0 if names else min(batch.lowest for batches in splits.values() for batch in batches)
    return DatasetContents(tuple(units), first_class=min(1, first_class), class_names=names)


def _splits(folder: Path, labels: LabelKind) -> dict[str, list[CifarFile]]:
    """Return the files of each split, in the layout (of four) that is present in `folder`."""
    for train, test, suffix, label_bytes, label in (
        (BATCHES, "test_batch", ".bin", 1, 0),
        (["train"], "test", ".bin", 2, int(labels == "fine")),
        (BATCHES, "test_batch", "", 0, 0),
        (["train"], "test", "", 0, 0),
    ):
        if (folder / f"{train[0]}{suffix}").is_file():
            key = "labels" if train == BATCHES else f"{labels}_labels"
            return {
                split: [_open(folder / f"{stem}{suffix}", label_bytes, label, key) for stem in stems]
                for split, stems in (("train", train), ("test", [test]))
            }
    raise UserError(
        f"{folder}: no CIFAR data found; expected data_batch_1.bin or data_batch_1 (CIFAR-10), train.bin or train "
        f"(CIFAR-100)"
    )


def _open(path: Path, label_bytes: int, label: int, key: str) -> CifarFile:
    if not path.is_file():
        raise UserError(f"{path}: file not found; download or copy all files of the data set")
    if not label_bytes:
        # In the python layout, only unpickling reveals the number of records.
        return CifarFile(path, len(load_batch(path, key)[1]), 0, 0, key)
    count, rest = divmod(path.stat().st_size, label_bytes + PIXELS)
    if rest or not count:
        raise UserError(
            f"{path}: the file has {path.stat().st_size:,} bytes, which is not a positive multiple of the record size "
            f"({label_bytes + PIXELS:,} bytes); download or copy it again"
        )
    return CifarFile(path, count, label_bytes, label, key)


def _block(batches: list[CifarFile], start: int, end: int) -> SampleBlock:
    """Return samples start..end-1 of the concatenated batches."""
    blocks, before = [], 0
    for batch in batches:
        first, last = max(start - before, 0), min(end - before, batch.count)
        if first < last:
            blocks.append(batch.read(first, last))
        before += batch.count
    images = np.concatenate([block.inputs[0] for block in blocks])
    return SampleBlock((images,), np.concatenate([block.labels for block in blocks]))


def _class_names(folder: Path, labels: LabelKind) -> tuple[str, ...]:
    for name in ("batches.meta.txt", f"{labels}_label_names.txt"):
        if (folder / name).is_file():
            return tuple((folder / name).read_text(errors="replace").split())
    for name, key in (("batches.meta", "label_names"), ("meta", f"{labels}_label_names")):
        if (folder / name).is_file():
            return load_class_names(folder / name, key)
    return ()


def load_batch(path: Path, key: str) -> tuple[Array, Labels]:
    """Return pixels (n, 3072) uint8 and the labels `key`, (n,). Raises UserError if the file is not a CIFAR batch."""
    content = _content(path)
    pixels, labels = content.get("data"), np.array(content.get(key, []), object).reshape(-1)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (PIXELS,)
        or len(labels) != len(pixels)
    ):
        raise UserError(
            f"{path}: not a CIFAR batch (expected `data` of shape (n, {PIXELS}) and n values in `{key}`); download or copy it "
            f"again"
        )
    if not all(isinstance(label, int | np.integer) and 0 <= label < 100 for label in labels):
        raise UserError(f"{path}: a label is not an integer in 0..99; download or copy the file again")
    return pixels, labels.astype(np.int64)


def load_class_names(path: Path, key: str) -> tuple[str, ...]:
    """Return the class names in a meta file. Raises UserError if it has no list of names `key`."""
    found = _content(path).get(key)
    if not isinstance(found, list) or not all(isinstance(name, bytes | str) for name in found):
        raise UserError(f"{path}: `{key}` is missing or not a list of names; download or copy the file again")
    return tuple(map(_text, found))


def _content(path: Path) -> dict[str, Any]:
    """Return the dictionary of a file, with keys as text. Raises UserError if it is not a CIFAR pickle."""
    try:
        # The official files were written by Python 2, whose str can hold any bytes.
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return {_text(key): value for key, value in content.items()}
    except DAMAGED as error:
        raise UserError(
            f"{path}: not a CIFAR file ({str(error) or 'truncated'}); download or copy it again"
        ) from error


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


MULTIARRAY = {f"numpy.{core}.multiarray" for core in ("core", "_core")}
ADMITTED = {
    *((module, name) for module in MULTIARRAY for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
}  # fmt: skip


# The implementation in Python (undocumented, but part of each CPython), because the one in C allocates 16 bytes times the largest index in the pickle.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"the file refers to {module}.{name}, which CIFAR files do not use")
        # numpy 2 has renamed numpy.core; the official files have the old name.
        return super().find_class("numpy._core.multiarray" if module in MULTIARRAY else module, name)
