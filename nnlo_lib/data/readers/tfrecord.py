"""Reader of ImageNet as TFRecords: files like train-00000-of-01024, each of which becomes one shard.

A record consists of its length (8 bytes, little endian), the masked CRC-32C of the length, the data, and
their masked CRC-32C.
"""

import os
import re
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import google_crc32c
import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.readers.example import parse
from nnlo_lib.data.readers.image import Pixels, Resize, decode, resized

SPLITS = {"train": "train", "validation": "test", "test": "test"}
FILE_NAME_PATTERN = re.compile(rf"({'|'.join(SPLITS)})-\d{{5}}-of-(\d{{5}})")
HEADER, FOOTER = 12, 4  # bytes before and after the data of a record
LABELS = range(1 << 15)  # labels are stored as int16, as in PyDTNN

Value = TypeVar("Value")


class RecordError(ValueError):
    """Reason why a record cannot be used; `lost` is True if the next record cannot be located either."""

    def __init__(self, reason: str, lost: bool = False) -> None:
        super().__init__(f"{reason}; the rest of the file cannot be read" if lost else reason)
        self.lost = lost


def list_shards(folder: Path) -> list[str]:
    """Return the name of the shard for each TFRecord in `folder`, like train/train-00000-of-01024.

    Raises UserError if train files are missing, a split is incomplete, or files of several sets are mixed.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error
    files = {prefix: _set(folder, prefix, names) for prefix in SPLITS}
    if not files["train"]:
        raise UserError(
            f"{folder}: no TFRecords found; set data.source to a folder of files like train-00000-of-01024"
        )
    return [f"{SPLITS[prefix]}/{file}" for prefix in SPLITS for file in files[prefix]]


def _set(folder: Path, prefix: str, names: Sequence[str]) -> list[str]:
    """Return the files of a split in order. Raises UserError if files are missing or of several sets.

    Args:
        folder: folder of the files.
        prefix: first part of the file names: train, validation or test.
        names: names of all files in the folder.
    """
    found = {
        name: match[2]
        for name in names
        if (match := FILE_NAME_PATTERN.fullmatch(name)) and match[1] == prefix
    }
    counts = sorted(set(found.values()))
    if len(counts) > 1:
        raise UserError(
            f"{folder}: {prefix} files of several sets ({' and '.join(counts)} files); keep the files of one set only"
        )
    wanted = [f"{prefix}-{index:05d}-of-{count}" for count in counts for index in range(int(count))]
    if missing := [name for name in wanted if name not in found]:
        some = ", ".join(missing[:3]) + ", ..." * (len(missing) > 3)
        raise UserError(f"{folder}: {len(missing)} of {len(wanted)} TFRecords are missing: {some}")
    if strange := found.keys() - set(wanted):
        raise UserError(
            f"{folder}: the number of {min(strange)} is not below the number of files in its name; remove the file"
        )
    return wanted


def read(
    folder: Path,
    shard_size: int,
    *,
    resize: Resize = "pydtnn",
    size: int = 227,
    on_corrupt: Literal["error", "skip"] = "error",
) -> DatasetContents:
    """Return the contents of the TFRecords; each file becomes one shard and `shard_size` is ignored.

    As in PyDTNN, `x` is uint8 (n, 3, size, size) and `y` is int16 (n, 1) counted from 1. Raises UserError
    like `list_shards`. Reading a unit raises UserError if a record is corrupt, or, if `on_corrupt` is "skip",
    only if no record of the file can be used.

    Args:
        folder: folder of the TFRecords.
        shard_size: not used.
        resize: method, see `readers.image.resized`.
        size: side of the stored images, in pixels.
        on_corrupt: raise an error for a corrupt record, or skip it.
    """
    units = []
    for name in list_shards(folder):
        split, _, file = name.partition("/")
        block = partial(_block, folder / file, resize, size, on_corrupt == "skip")
        units.append(ConversionUnit(split, name, folder / file, block))
    return DatasetContents(tuple(units), inputs=("x",), labels="y", first_class=1)


def _block(path: Path, resize: Resize, size: int, skip: bool) -> SampleBlock:
    samples, skipped = [], []
    for number, offset, item in read_records(path):
        try:
            samples.append(_sample(item, resize, size))
        except ValueError as error:
            if not skip:
                raise UserError(
                    f"{path}: record {number} at byte {offset}: {error}; download or copy the file again, or set "
                    f"data.reader.on_corrupt: skip"
                ) from error
            skipped.append(f"record {number}: {error}")
    if not samples:
        reason = skipped[0] if skipped else "the file is empty"
        raise UserError(f"{path}: no usable record ({reason}); download or copy the file again")
    images, labels = zip(*samples, strict=True)
    return SampleBlock((np.stack(images),), np.array(labels, np.int16)[:, np.newaxis], tuple(skipped))


def _sample(item: bytes | RecordError, resize: Resize, size: int) -> tuple[Pixels, int]:
    if isinstance(item, RecordError):
        raise item
    features = parse(item)
    label = _single(features, "image/class/label", int)
    if label not in LABELS:
        raise RecordError(f"the label {label} is not in 0..{LABELS[-1]}")
    return resized(decode(_single(features, "image/encoded", bytes)), resize, size), label


def _single(features: dict[str, list[Any]], name: str, kind: type[Value]) -> Value:
    match features.get(name):
        case [value] if isinstance(value, kind):
            return value
    raise RecordError(f"no single value of type {kind.__name__} for {name}")


def read_records(path: Path) -> Iterator[tuple[int, int, bytes | RecordError]]:
    """Yield (number, byte offset, data) of each record, with a RecordError in place of damaged data.

    Raises UserError if the file cannot be read.
    """
    offset = number = 0
    try:
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            while offset < end:
                item = _record(file, end - offset)
                yield number, offset, item
                # Records have no marks; only the length of a record leads to the next one.
                if isinstance(item, RecordError) and item.lost:
                    return
                offset, number = file.tell(), number + 1
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _record(file: BinaryIO, left: int) -> bytes | RecordError:
    """Return the data of the next record, or a RecordError; `left`: bytes up to the end of the file."""
    header = file.read(HEADER)
    if len(header) < HEADER:
        return RecordError("truncated", lost=True)
    length, check = struct.unpack("<QI", header)
    if _masked_crc(header[:8]) != check:
        return RecordError("damaged length (the checksum differs)", lost=True)
    # Before reading, because a faulty writer can give a wrong length a right checksum.
    if length > left - HEADER - FOOTER:
        return RecordError(f"declared length of {length:,} bytes, but the file ends earlier", lost=True)
    data, footer = file.read(length), file.read(FOOTER)
    whole = footer == struct.pack("<I", _masked_crc(data))
    return data if whole else RecordError("damaged (the checksum differs)")


def _masked_crc(data: bytes) -> int:
    """Return TFRecord's masked checksum: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
