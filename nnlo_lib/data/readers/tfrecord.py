"""ImageNet as TFRecords: files like train-00000-of-01024, each of which becomes one shard.

A record is its length (8 bytes, little endian), the masked CRC-32C of that, the data, and its masked CRC-32C.
"""

import re
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from nnlo_lib.data.readers import Block, Contents, Unit
from nnlo_lib.errors import UserError

NAME = re.compile(r"(train|validation|test)-(\d{5})-of-(\d{5})")
HEADER, FOOTER = 12, 4  # bytes before and behind the data of a record
LABELS = range(1 << 15)  # what PyDTNN's int16 holds


class RecordError(ValueError):
    """Why a record cannot be used; `lost` if it hides where the next one starts."""

    def __init__(self, reason: str, lost: bool = False) -> None:
        super().__init__(reason)
        self.lost = lost


def shards(folder: Path) -> list[str]:
    """List the shards that the TFRecords in `folder` become, like train/train-00000-of-01024.

    Raises UserError if files of a set are missing, or there are none.
    """
    found = sorted(match.groups() for path in folder.iterdir() if (match := NAME.fullmatch(path.name)))
    if not any(split == "train" for split, _, _ in found):
        raise UserError(
            f"{folder} holds no TFRecords: files like train-00000-of-01024 are wanted (data.source)"
        )
    for split, count in sorted({(split, count) for split, _, count in found}):
        missing = set(range(int(count))) - {
            int(index) for name, index, of in found if (name, of) == (split, count)
        }
        if missing:
            some = ", ".join(f"{split}-{index:05d}-of-{count}" for index in sorted(missing)[:3])
            raise UserError(
                f"{folder} lacks {len(missing)} of {int(count)} TFRecords: {some}{', ...' * (len(missing) > 3)}"
            )
    return [
        f"{'train' if split == 'train' else 'test'}/{split}-{index}-of-{count}"
        for split, index, count in found
    ]


def read(
    folder: Path,
    shard_size: int,
    *,
    resize: Literal["pydtnn", "standard", "none"] = "pydtnn",
    size: int = 227,
    on_corrupt: Literal["error", "skip"] = "error",
) -> Contents:
    """List the files; `x` is uint8 (n, 3, size, size), `y` int16 (n, 1) from 1, as PyDTNN has them."""
    units = []
    for name in shards(folder):
        split, _, file = name.partition("/")
        block = partial(_block, folder / file, resize, size, on_corrupt == "skip")
        units.append(Unit(split, name, folder / file, block))
    return Contents(tuple(units), inputs=("x",), labels="y", first_class=1)


def _block(path: Path, resize: Literal["pydtnn", "standard", "none"], size: int, skip: bool) -> Block:
    import numpy as np

    images, labels, skipped = [], [], []
    for number, offset, item in records(path):
        try:
            image, label = _sample(item, resize, size)
        except ValueError as error:
            if not skip:
                raise UserError(
                    f"{path}: record {number} at byte {offset} {error}; get the file again, or set "
                    f"data.reader.on_corrupt: skip"
                ) from error
            skipped.append(f"record {number}: {error}")
        else:
            images.append(image)
            labels.append(label)
    if not images:
        raise UserError(f"{path} holds no record that can be used; get the file again")
    return Block((np.stack(images),), np.array(labels, np.int16)[:, np.newaxis], tuple(skipped))


def _sample(
    item: bytes | RecordError, resize: Literal["pydtnn", "standard", "none"], size: int
) -> "tuple[Pixels, int]":  # type: ignore[name-defined]  # noqa: F821
    from nnlo_lib.data.readers.example import parse
    from nnlo_lib.data.readers.image import decode, resized

    if isinstance(item, RecordError):
        raise item
    features = parse(item)
    encoded, label = (features.get(name, [])[:1] for name in ("image/encoded", "image/class/label"))
    if not (encoded and isinstance(encoded[0], bytes) and label and label[0] in LABELS):
        raise RecordError("lacks image/encoded or has no image/class/label of 0..32767")
    return resized(decode(encoded[0]), resize, size), label[0]


def records(path: Path) -> Iterator[tuple[int, int, bytes | RecordError]]:
    """Yield (number, byte offset, data) of each record, a RecordError in place of data that is damaged."""
    end, offset, number = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        while offset < end:
            item = _record(file, end - offset)
            yield number, offset, item
            if isinstance(item, RecordError) and item.lost:
                return
            offset, number = file.tell(), number + 1


def _record(file: BinaryIO, left: int) -> bytes | RecordError:
    header = file.read(HEADER)
    if len(header) < HEADER:
        return RecordError("is truncated", lost=True)
    length, check = struct.unpack("<QI", header)
    if _masked_crc(header[:8]) != check:
        return RecordError(
            "has a damaged length (its checksum differs); the rest of the file is lost", lost=True
        )
    if length > left - HEADER - FOOTER:
        return RecordError(f"declares {length:,} bytes, but the file ends before", lost=True)
    data = file.read(length)
    (check,) = struct.unpack("<I", file.read(FOOTER))
    return data if _masked_crc(data) == check else RecordError("is damaged (its checksum differs)")


def _masked_crc(data: bytes) -> int:
    """CRC-32C, rotated right by 15 bits, plus a constant: so TFRecords hide checksums of checksums."""
    import google_crc32c

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
