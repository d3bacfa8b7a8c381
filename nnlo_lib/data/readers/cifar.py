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
from nnlo_lib.data.fetch.record import Stamp, stamp_of
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
# Training files, test file, suffix and number of label bytes (0: python) of each layout.
LAYOUTS = (
    (BATCHES, "test_batch", ".bin", 1),
    (["train"], "test", ".bin", 2),
    (BATCHES, "test_batch", "", 0),
    (["train"], "test", "", 0),
)
CLASSES = {"labels": 10, "fine_labels": 100, "coarse_labels": 20}
LabelKind = Literal["fine", "coarse"]
DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, UnicodeError, AssertionError, struct.error)  # fmt: skip
MULTIARRAY = {f"numpy.{core}.multiarray" for core in ("core", "_core")}
ADMITTED = {
    *((module, name) for module in MULTIARRAY for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
}  # fmt: skip


@dataclass(frozen=True)
class CifarFile:
    """One file of CIFAR records, with the labels `key` of CLASSES; `label_bytes` of a binary record, 0 for the python layout."""

    path: Path
    key: str
    label_bytes: int

    def load(self) -> tuple[Array, Labels]:
        """Return pixels (n, 3072) and labels. Raises UserError if the file is gone or damaged, or a label is not a class."""
        if not self.path.is_file():
            raise UserError(f"{self.path}: file not found; download or copy all files of the data set")
        try:
            return _loaded(self, stamp_of(self.path))
        except OSError as error:
            raise UserError(
                f"cannot read {self.path}: {error.strerror}; download or copy all files of the data set"
            ) from error


@lru_cache(maxsize=1)
def _loaded(file: CifarFile, _version: Stamp) -> tuple[Array, Labels]:
    """Return the records of one version of a file, which is unpickled once for all consecutive shards from it."""
    if file.label_bytes:
        size, width = file.path.stat().st_size, file.label_bytes + PIXELS
        if size % width or not size:
            raise UserError(
                f"{file.path}: the file has {size:,} bytes, which is not a positive multiple of the record size ({width:,} bytes); "
                "download or copy it again"
            )
        rows = np.memmap(file.path, np.uint8, "r").reshape(-1, width)
        pixels, labels = rows[:, file.label_bytes :], rows[:, int(file.key == "fine_labels")]
    else:
        pixels, labels = load_batch(file.path, file.key)
    count = CLASSES[file.key]
    for number, label in enumerate(labels.tolist()):
        if not isinstance(label, int | np.integer) or not 0 <= label < count:
            raise UserError(
                f"{file.path}: record {number} has label {label}, but the `{file.key}` of CIFAR are 0..{count - 1}; download or copy the "
                "file again"
            )
    return pixels, labels.astype(np.int64)


def read(folder: Path, shard_size: int, *, labels: LabelKind = "fine") -> DatasetContents:
    """Return the contents of `folder`, or of its only subfolder; `labels` are those of CIFAR-100 to use."""
    firsts = {train[0] + suffix for train, _, suffix, _ in LAYOUTS}
    if not any((folder / name).is_file() for name in firsts) and folder.is_dir():
        folders = [path for path in folder.iterdir() if path.is_dir() and is_visible(path.name)]
        folder = folders[0] if len(folders) == 1 else folder
    units, lowest = list[ConversionUnit](), 1
    for split, files in _splits(folder, labels).items():
        loaded = {file: file.load()[1] for file in files}
        lowest = min(lowest, *(int(each.min(initial=1)) for each in loaded.values()))
        counts, paths = {file: len(each) for file, each in loaded.items()}, tuple(file.path for file in files)
        units += (
            ConversionUnit(split, name, paths[0], partial(_block, counts, start, end), files=paths)
            for name, start, end in shard_ranges(split, sum(counts.values()), shard_size, PIXELS)
        )
    names = _class_names(folder, labels)
    # As in readers.idx: a class 0 without a sample would be learned, too. Names say which class is the first.
    return DatasetContents(tuple(units), first_class=0 if names else lowest, class_names=names)


def _splits(folder: Path, labels: LabelKind) -> dict[str, list[CifarFile]]:
    """Return the files of each split, in the layout that is present in `folder`."""
    for train, test, suffix, label_bytes in LAYOUTS:
        if not (folder / f"{train[0]}{suffix}").is_file():
            continue
        key = "labels" if train == BATCHES else f"{labels}_labels"
        paths = {
            "train": [folder / f"{stem}{suffix}" for stem in train],
            "test": [folder / f"{test}{suffix}"],
        }
        return {split: [CifarFile(path, key, label_bytes) for path in each] for split, each in paths.items()}
    raise UserError(
        f"{folder}: no CIFAR data found; expected data_batch_1.bin or data_batch_1 (CIFAR-10), train.bin or train "
        f"(CIFAR-100)"
    )


def _block(counts: dict[CifarFile, int], start: int, end: int) -> SampleBlock:
    """Return samples start..end-1 of the concatenated files, of which `counts` has the numbers of records."""
    images, labels, before = [], [], 0
    for file, count in counts.items():
        first, last = max(start - before, 0), min(end - before, count)
        if first < last:
            pixels, numbers = file.load()
            images.append(pixels[first:last].reshape(-1, *IMAGE))
            labels.append(numbers[first:last])
        before += count
    return SampleBlock((np.concatenate(images),), np.concatenate(labels))


def _class_names(folder: Path, labels: LabelKind) -> tuple[str, ...]:
    for name in ("batches.meta.txt", f"{labels}_label_names.txt"):
        if (folder / name).is_file():
            return tuple((folder / name).read_text(errors="replace").split())
    for name, key in (("batches.meta", "label_names"), ("meta", f"{labels}_label_names")):
        if (path := folder / name).is_file():
            found = _content(path).get(key)
            if not isinstance(found, list) or not all(isinstance(each, bytes | str) for each in found):
                raise UserError(
                    f"{path}: `{key}` is missing or not a list of names; download or copy the file again"
                )
            return tuple(map(_text, found))
    return ()


def load_batch(path: Path, key: str) -> tuple[Array, Array]:
    """Return pixels (n, 3072) uint8 and the labels `key`, (n,) of any type. Raises UserError if the file is not a CIFAR batch."""
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
    return pixels, labels


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


# The implementation in Python (undocumented, but part of each CPython), because the one in C allocates 16 bytes times the largest index in the pickle.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"the file refers to {module}.{name}, which CIFAR files do not use")
        # numpy 2 has renamed numpy.core; the official files have the old name.
        return super().find_class("numpy._core.multiarray" if module in MULTIARRAY else module, name)
