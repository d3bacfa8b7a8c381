"""Reader `tfrecord` of images in TFRecords, each of which becomes one shard.

Files are found by the names of ImageNet and TensorFlow Datasets, like train-00000-of-01024, or by patterns of the user.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock, print_once
from nnlo_lib.data.readers.image import ColorMode, ImageError, Pixels, Resize, as_type, decode, resized
from nnlo_lib.data.readers.splits import matching_files, refuse_repeated_files
from nnlo_lib.data.readers.tfrecord_stream import RecordError, parse, read_records

SPLITS = ("train", "validation", "test")
# train-00000-of-01024, imagenet2012-train.tfrecord-00000-of-01024, train-00000-of-00010.tfrecord.gz
FILE_NAME = re.compile(
    r"(?P<before>(?:.+[-_.])?)(?P<split>train|validation|test)(?P<middle>(?:\.\w+)?)"
    r"-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<after>(?:\.tfrec\w*)?(?:\.gz)?)"
)
EXAMPLES = "train-00000-of-01024 or imagenet2012-train.tfrecord-00000-of-01024"
SMALLEST_BYTES = 64  # no record with an image is as short, but gzip's file without content is
LABELS = range(1 << 15)  # labels are stored as int16, as in PyDTNN
Patterns = Mapping[str, str | None]  # pattern of the files of each split
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

    As in PyDTNN, `x` is uint8 (n, 3, size, size) and `y` is int16 (n, 1), by default counted from 1.
    """
    sample = partial(_sample, image_key, label_key, resize, size, colour)
    files, notes = _with_records(find_files(folder, {"train": train, "validation": validation, "test": test}))
    units = [
        ConversionUnit(
            name.partition("/")[0],
            name,
            path,
            partial(_block, path, sample, first_class, on_corrupt == "skip"),
        )
        for name, path in files.items()
    ]
    # TensorFlow Datasets keeps the names of the classes beside the files.
    path = folder / f"{label_key}.labels.txt"
    names = tuple(path.read_text(errors="replace").split("\n")[:-1]) if path.is_file() else ()
    return DatasetContents(
        tuple(units), inputs=("x",), labels="y", first_class=first_class, class_names=names, notes=notes
    )


def _with_records(files: Mapping[str, Path]) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the files without those that hold no record, which writers of many shards leave, and a note on these.

    The files of a split that has no record at all remain: their conversion names them.
    """
    empty = {
        name
        for name, path in files.items()
        if path.stat().st_size < SMALLEST_BYTES and next(read_records(path), None) is None
    }
    splits = {name.partition("/")[0] for name in files.keys() - empty}
    left_out = sorted(name for name in empty if name.partition("/")[0] in splits)
    if not left_out:
        return dict(files), ()
    note = f"files without a record are left out: {', '.join(str(files[name]) for name in left_out)}"
    print_once(note)
    return {name: path for name, path in files.items() if name not in left_out}, (note,)


def _block(path: Path, sample: "partial[tuple[Pixels, int]]", first_class: int, skip: bool) -> SampleBlock:
    """Return the samples in a file; `sample` returns the image and the class in a record."""
    samples, skipped = [], []
    for number, offset, item in read_records(path):
        try:
            samples.append(sample(item))
        except ValueError as error:
            if not skip:
                advice = "download or copy the file again"
                if isinstance(error, ImageError):
                    # The checksum of the record is right.
                    advice = "it was written so, perhaps as raw pixels: name the feature of an encoded image by data.reader.image_key"
                raise UserError(
                    f"{path}: record {number} at byte {offset}: {error}; {advice}, or set data.reader.on_corrupt: skip"
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
    """Return the image and the class in a record, or in `item`, its data. Raises ValueError if it cannot be used."""
    if isinstance(item, RecordError):
        raise item
    features = parse(item)
    label = _single(features, label_key, int)
    if label not in LABELS:
        raise RecordError(f"the label {label} is not in 0..{LABELS[-1]}")
    image = decode(_single(features, image_key, bytes), colour)
    return as_type(resized(image, resize, size), np.dtype(np.uint8)), label


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


def find_files(folder: Path, patterns: Patterns) -> dict[str, Path]:
    """Return the file of each shard by the name of the shard, like train/train-00000-of-01024.

    Without any pattern, the files are found by their names, and `validation` is the test split if there is no other. Raises UserError
    if train files are missing, a split is incomplete, or files of several sets are mixed.
    """
    targets = {"validation": "test"}
    if any(patterns.values()):
        if not patterns["train"]:
            raise UserError("data.reader.train: missing; give the pattern of the training files too")
        chosen = {
            split: matching_files(folder, pattern, f"data.reader.{split}")
            for split, pattern in patterns.items()
            if pattern
        }
        refuse_repeated_files(chosen)
    else:
        try:
            matches = [match for name in os.listdir(folder) if (match := FILE_NAME.fullmatch(name))]
        except OSError as error:
            raise UserError(f"cannot read {folder}: {error.strerror}") from error
        chosen = {
            split: _set(folder, [each for each in matches if each["split"] == split]) for split in SPLITS
        }
    if not chosen["train"]:
        raise UserError(
            f"{folder}: no TFRecords found; set data.source to a folder of files like {EXAMPLES}, or name the files in "
            f"data.reader.train"
        )
    if chosen.get("test") or any(patterns.values()):
        targets = {}
    return {
        f"{targets.get(split, split)}/{split}-{index:05d}-of-{len(paths):05d}": path
        for split, paths in chosen.items()
        for index, path in enumerate(paths)
    }


def _set(folder: Path, matches: Sequence[re.Match[str]]) -> list[Path]:
    """Return the files of a split in order, from the parts of their names. Raises UserError as `find_files` does."""
    sets = sorted(
        {match.expand(r"\g<before>\g<split>\g<middle>-*-of-\g<count>\g<after>") for match in matches}
    )
    if len(sets) > 1:
        raise UserError(
            f"{folder}: {matches[0]['split']} files of several sets ({' and '.join(sets)}); keep the files of one set only, or name "
            f"the files in data.reader.train"
        )
    present = {match.string for match in matches}
    wanted = [
        each.replace("*", f"{index:05d}", 1) for each in sets for index in range(int(matches[0]["count"]))
    ]
    if missing := [name for name in wanted if name not in present]:
        some = ", ".join(missing[:3]) + ", ..." * (len(missing) > 3)
        raise UserError(f"{folder}: {len(missing)} of {len(wanted)} TFRecords are missing: {some}")
    if strange := sorted(present - {*wanted}):
        raise UserError(
            f"{folder}: the number of {strange[0]} is not below the number of files in its name; remove the file"
        )
    return [folder / name for name in wanted]
