"""Reader of images in one folder per class: <split>/<class>/*, or <class>/* without splits."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock, shard_ranges
from nnlo_lib.data.readers.image import ColorMode, ImageError, Resize, decode, resized

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SPLITS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
LAYOUT = "expected <split>/<class>/<image> with the splits train and test (or val), or <class>/<image>"

LabeledPath = tuple[str, int]  # path below the folder, class


def read(
    folder: Path,
    shard_size: int,
    *,
    size: int = 224,
    resize: Resize = "standard",
    colour: ColorMode = "rgb",
    test_fraction: float = 0.2,
    on_corrupt: Literal["error", "skip"] = "error",
) -> DatasetContents:
    """Return the contents of the image folders.

    Classes are the sorted names of the folders; samples are ordered by the hash of their path, which mixes
    the classes. If the only split beside `train` is `val` or `validation`, it is used as the test split.
    Links, hidden files and files with other suffixes are ignored.

    Args:
        folder: folder of the splits or of the classes.
        shard_size: maximum number of images per shard.
        size: side of the stored images, in pixels.
        resize: method, see `readers.image.resized`.
        colour: stored channels, "rgb" (3) or "grey" (1).
        test_fraction: fraction of each class that becomes the test split if there are no split folders. These
            are the images with the smallest hashes, so adding an image to a class moves at most one other
            image between training and test.
        on_corrupt: raise an error for an image that cannot be decoded, or skip it.
    Raises:
        UserError: if a class is empty, or if a split has a class that train does not have.
    """
    classes, splits = _listed(folder, test_fraction)
    units, sample_bytes = [], size * size * (3 if colour == "rgb" else 1)
    for split, images in splits.items():
        for name, start, end in shard_ranges(split, len(images), shard_size, sample_bytes):
            block = partial(_block, folder, images[start:end], resize, size, colour, on_corrupt == "skip")
            files = tuple(folder / path for path, _ in images[start:end])
            units.append(ConversionUnit(split, name, folder, block, files=files))
    return DatasetContents(tuple(units), class_names=tuple(classes))


def _listed(folder: Path, test_fraction: float) -> tuple[list[str], dict[str, list[LabeledPath]]]:
    """Return the class names and the images of each split."""
    prefixes = _prefixes(folder)
    classes = _folders(folder / prefixes["train"])
    if not classes:
        raise UserError(f"{folder / prefixes['train']}: no folders of images found; {LAYOUT}")
    numbers = {name: number for number, name in enumerate(classes)}
    splits = {split: _images(folder, prefix, numbers) for split, prefix in prefixes.items()}
    return classes, splits if prefixes["train"] else _divided(splits["train"], test_fraction)


def _prefixes(folder: Path) -> dict[str, str]:
    """Return the path prefix of each split below `folder`; {"train": ""} if there are no split folders."""
    names = [name for name in _folders(folder) if name in SPLITS]
    if not names:
        return {"train": ""}
    prefixes = {SPLITS[name]: f"{name}/" for name in names}
    if "train" not in prefixes or len(prefixes) < len(names):
        raise UserError(f"{folder}: the folders {' and '.join(names)} are not a set of splits; {LAYOUT}")
    if "test" not in prefixes and "validation" in prefixes:
        prefixes["test"] = prefixes.pop("validation")
    return prefixes


def _images(folder: Path, prefix: str, classes: Mapping[str, int]) -> list[LabeledPath]:
    """Return the images of all classes of a split, ordered by the hash of their path.

    Args:
        folder: folder of the splits or of the classes.
        prefix: path of the split below `folder` with a slash at the end; empty if there are no splits.
        classes: number of each class by the name of its folder.
    """
    images = []
    for name in _folders(folder / prefix):
        if name not in classes:
            raise UserError(
                f"{folder / prefix}: the class {name} does not exist in train; add it to train, or remove it"
            )
        paths = list(_below(folder, prefix + name))
        if not paths:
            raise UserError(
                f"{folder / prefix / name}: no image found ({' '.join(IMAGE_SUFFIXES)}); {LAYOUT}"
            )
        images += [(path, classes[name]) for path in paths]
    return sorted(images, key=lambda image: _hash(image[0].removeprefix(prefix)))


def _below(folder: Path, place: str) -> Iterator[str]:
    for entry in _entries(folder / place):
        path = f"{place}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder, path)
        elif entry.name.lower().endswith(IMAGE_SUFFIXES) and entry.is_file(follow_symlinks=False):
            yield path


def _folders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in _entries(folder) if entry.is_dir(follow_symlinks=False))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of `folder` that are not hidden. Raises UserError if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}") from error


def _divided(images: Sequence[LabeledPath], test_fraction: float) -> dict[str, list[LabeledPath]]:
    """Return train and test: the first images of each class are test images, at least one remains in train."""
    sizes = Counter(number for _, number in images)
    wanted = {number: min(round(test_fraction * size), size - 1) for number, size in sizes.items()}
    splits: dict[str, list[LabeledPath]] = {"train": [], "test": []}
    for path, number in images:
        splits["test" if wanted[number] > 0 else "train"].append((path, number))
        wanted[number] -= 1
    return {split: images for split, images in splits.items() if images}


def _hash(path: str) -> bytes:
    # File names on Linux are bytes, which need not be valid UTF-8.
    return hashlib.blake2b(os.fsencode(path), digest_size=8).digest()


def _block(
    folder: Path, images: Sequence[LabeledPath], resize: Resize, size: int, colour: ColorMode, skip: bool
) -> SampleBlock:
    pixels, labels, skipped = [], [], []
    for path, number in images:
        try:
            pixels.append(resized(decode(_bytes(folder / path), colour), resize, size))
            labels.append(number)
        except ImageError as error:
            if not skip:
                raise UserError(
                    f"{folder / path}: {error}; replace the image, or set data.reader.on_corrupt: skip"
                ) from error
            skipped.append(f"{path}: {error}")
    if not pixels:
        raise UserError(
            f"{folder}: none of {len(images)} images can be used ({skipped[0]}); replace the images"
        )
    return SampleBlock((np.stack(pixels),), np.array(labels, np.int64), tuple(skipped))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
