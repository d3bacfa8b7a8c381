"""Reader of images in TFRecords: files like train-00000-of-01024, each of which becomes one shard."""

from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.readers.example import parse
from nnlo_lib.data.readers.image import ColorMode, Pixels, Resize, decode, resized
from nnlo_lib.data.readers.tfrecord_files import find_files
from nnlo_lib.data.readers.tfrecord_stream import RecordError, read_records

LABELS = range(1 << 15)  # labels are stored as int16, as in PyDTNN

Value = TypeVar("Value")


def read(
    folder: Path,
    shard_size: int,
    *,
    resize: Resize = "pydtnn",
    size: int = 227,
    colour: ColorMode = "rgb",
    image_key: str = "image/encoded",
    label_key: str = "image/class/label",
    first_class: int = 1,
    train: str | None = None,
    validation: str | None = None,
    test: str | None = None,
    on_corrupt: Literal["error", "skip"] = "error",
) -> DatasetContents:
    """Return the contents of the TFRecords; each file becomes one shard and `shard_size` is ignored.

    As in PyDTNN, `x` is uint8 (n, 3, size, size) and `y` is int16 (n, 1), by default counted from 1. Raises
    UserError like `find_files`. Reading a unit raises UserError if a record is corrupt, or, if `on_corrupt` is
    "skip", only if no record of the file can be used.

    Args:
        folder: folder of the TFRecords.
        shard_size: not used.
        resize: method, see `readers.image.resized`.
        size: side of the stored images, in pixels.
        colour: stored channels, "rgb" (3) or "grey" (1).
        image_key: name of the feature with the encoded image.
        label_key: name of the feature with the class.
        first_class: number of the first class.
        train, validation, test: pattern of the files of each split; None: by their names.
        on_corrupt: raise an error for a corrupt record, or skip it.
    """
    sample = partial(_sample, image_key, label_key, resize, size, colour)
    files = find_files(folder, {"train": train, "validation": validation, "test": test})
    units = [
        ConversionUnit(
            name.partition("/")[0],
            name,
            path,
            partial(_block, path, sample, first_class, on_corrupt == "skip"),
        )
        for name, path in files.items()
    ]
    names = _class_names(folder / f"{label_key}.labels.txt")
    return DatasetContents(
        tuple(units), inputs=("x",), labels="y", first_class=first_class, class_names=names
    )


def _class_names(path: Path) -> tuple[str, ...]:
    """Return the names of the classes that TensorFlow Datasets keeps beside the files, if any."""
    return tuple(path.read_text(errors="replace").split("\n")[:-1]) if path.is_file() else ()


def _block(path: Path, sample: "partial[tuple[Pixels, int]]", first_class: int, skip: bool) -> SampleBlock:
    """Return the samples in a file.

    Args:
        path: the file.
        sample: function that returns the image and the class in a record.
        first_class: number of the first class.
        skip: skip corrupt records.
    """
    samples, skipped = [], []
    for number, offset, item in read_records(path):
        try:
            samples.append(sample(item))
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
    # Not a damage of single records, which may be skipped: a whole class would be lost.
    if min(labels) < first_class:
        raise UserError(
            f"{path}: a label is {min(labels)}, but data.reader.first_class is {first_class}; set it to the lowest label"
        )
    return SampleBlock((np.stack(images),), np.array(labels, np.int16)[:, np.newaxis], tuple(skipped))


def _sample(
    image_key: str, label_key: str, resize: Resize, size: int, colour: ColorMode, item: bytes | RecordError
) -> tuple[Pixels, int]:
    """Return the image and the class in a record. Raises ValueError if the record cannot be used.

    Args:
        image_key, label_key, resize, size, colour: see `read`.
        item: data of the record, or the reason why it is damaged.
    """
    if isinstance(item, RecordError):
        raise item
    features = parse(item)
    label = _single(features, label_key, int)
    if label not in LABELS:
        raise RecordError(f"the label {label} is not in 0..{LABELS[-1]}")
    return resized(decode(_single(features, image_key, bytes), colour), resize, size), label


def _single(features: dict[str, list[Any]], name: str, kind: type[Value]) -> Value:
    match features.get(name):
        case [value] if isinstance(value, kind):
            return value
        case None:
            raise RecordError(
                f"no feature {name}; set data.reader.image_key and label_key (features of the record: "
                f"{', '.join(sorted(features)) or 'none'})"
            )
    raise RecordError(f"no single value of type {kind.__name__} for {name}")
