"""Images in folders, class = folder: <split>/<class>/*, or <class>/* without splits."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from nnlo_lib.data.readers import Block, Contents, Unit, ranges
from nnlo_lib.errors import UserError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
SPLITS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
LAYOUT = "<split>/<class>/<image> with the splits train and test (or val), or <class>/<image>, is wanted"

Labelled = tuple[str, int]  # path below the folder, class


def read(
    folder: Path,
    shard_size: int,
    *,
    size: int = 224,
    resize: Literal["pydtnn", "standard", "none"] = "standard",
    colour: Literal["rgb", "grey"] = "rgb",
    test_fraction: float = 0.2,
    on_corrupt: Literal["error", "skip"] = "error",
) -> Contents:
    """List the images; classes are the sorted names of the folders, samples lie in an order that mixes classes.

    Where only `val` or `validation` stands beside `train`, it is the test. Without split folders, `test_fraction` of
    each class is the test: the images whose path has the smallest hashes, so that few change when images are added.
    Links are not followed.
    """
    classes, splits = _listed(folder, test_fraction)
    units = []
    for split, images in splits.items():
        for name, start, end in ranges(split, len(images), shard_size):
            block = partial(_block, folder, images[start:end], resize, size, colour, on_corrupt == "skip")
            units.append(Unit(split, name, folder, block))
    return Contents(tuple(units), class_names=tuple(classes))


def _listed(folder: Path, test_fraction: float) -> tuple[list[str], dict[str, list[Labelled]]]:
    names = _folders(folder)
    found = {SPLITS[name]: name for name in names if name in SPLITS}
    if "train" not in found:
        classes, images = names, _images(folder, "", names)
        splits = _divided(images, test_fraction)
    else:
        classes = _folders(folder / found["train"])
        for name in found.values():
            if strange := set(_folders(folder / name)) - set(classes):
                raise UserError(
                    f"{folder / name} has the class {min(strange)}, which {found['train']} has not"
                )
        splits = {split: _images(folder, f"{name}/", classes) for split, name in found.items()}
    if "validation" in splits and "test" not in splits:
        splits["test"] = splits.pop("validation")
    used = {number for _, number in splits["train"]}
    for number, name in enumerate(classes):
        if number not in used:
            raise UserError(f"{folder}: the class {name} has no image to train from; {LAYOUT}")
    if not classes:
        raise UserError(f"{folder} holds no folders of images; {LAYOUT}")
    return classes, splits


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
            )
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error


def _images(folder: Path, prefix: str, classes: Sequence[str]) -> list[Labelled]:
    """List the images of the classes below folder/prefix, in the order of their hashes."""
    images = [
        (f"{prefix}{path}", number)
        for number, name in enumerate(classes)
        for path in _below(folder / prefix, name)
    ]
    return sorted(images, key=lambda image: _hash(image[0].removeprefix(prefix)))


def _below(folder: Path, name: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder / name):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for file in files:
            path = Path(parent, file)
            if path.suffix.lower() in SUFFIXES and not file.startswith(".") and not path.is_symlink():
                yield path.relative_to(folder).as_posix()


def _divided(images: list[Labelled], test_fraction: float) -> dict[str, list[Labelled]]:
    """Give the first images of each class, in the order of their hashes, to the test."""
    seen, wanted = dict[int, int](), dict[int, int]()
    for _, number in images:
        wanted[number] = wanted.get(number, 0) + 1
    splits: dict[str, list[Labelled]] = {"train": [], "test": []}
    for image in images:
        seen[image[1]] = seen.get(image[1], 0) + 1
        is_test = seen[image[1]] <= round(test_fraction * wanted[image[1]])
        splits["test" if is_test else "train"].append(image)
    return splits if splits["test"] else {"train": splits["train"]}


def _hash(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=8).digest()


def _block(
    folder: Path,
    images: Sequence[Labelled],
    resize: Literal["pydtnn", "standard", "none"],
    size: int,
    colour: str,
    skip: bool,
) -> Block:
    import numpy as np

    from nnlo_lib.data.readers.image import ImageError, decode, resized

    pixels, labels, skipped = [], [], []
    for path, number in images:
        try:
            pixels.append(resized(decode(_bytes(folder / path), colour), resize, size))
            labels.append(number)
        except ImageError as error:
            if not skip:
                raise UserError(
                    f"{folder / path} {error}; mend it, or set data.reader.on_corrupt: skip"
                ) from error
            skipped.append(f"{path}: {error}")
    if not pixels:
        raise UserError(
            f"{folder}: none of the images from {images[0][0]} on can be decoded; are they images?"
        )
    return Block((np.stack(pixels),), np.array(labels, np.int64), tuple(skipped))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
