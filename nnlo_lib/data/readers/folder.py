"""Reader of images in one folder per class: <split>/<class>/*, or <class>/* without splits."""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock, shard_ranges
from nnlo_lib.data.readers.image import ColorMode, ImageError, Resize, decode, resized
from nnlo_lib.data.readers.image_tree import ImageTree, LabeledPath


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
    the classes. The usual names of splits in any case are known (`image_tree.SPLIT_NAMES`); if the only split
    beside `train` is `validation`, it is used as the test split. Links are followed. Hidden files and files with
    other suffixes are ignored; their numbers are printed.

    Args:
        folder: folder of the splits or of the classes, or of a single folder with these.
        shard_size: maximum number of images per shard.
        size: side of the stored images, in pixels.
        resize: method, see `readers.image.resized`.
        colour: stored channels, "rgb" (3) or "grey" (1).
        test_fraction: fraction of each class that becomes the test split if there are no split folders. These
            are the images with the smallest hashes, so adding an image to a class moves at most one other
            image between training and test.
        on_corrupt: raise an error for an image that cannot be decoded, or skip it.
    Raises:
        UserError: if there is only one class, if a class is empty, if a split has a class that train does not
            have, or if a link leads to nothing or to a folder that contains it.
    """
    tree = ImageTree.of(folder)
    _print_skipped(tree)
    splits = tree.splits if tree.divided else _divided(tree.splits["train"], test_fraction)
    units, sample_bytes = [], size * size * (3 if colour == "rgb" else 1)
    for split, images in splits.items():
        for name, start, end in shard_ranges(split, len(images), shard_size, sample_bytes):
            block = partial(_block, tree.root, images[start:end], resize, size, colour, on_corrupt == "skip")
            files = tuple(tree.root / path for path, _ in images[start:end])
            units.append(ConversionUnit(split, name, tree.root, block, files=files))
    return DatasetContents(tuple(units), class_names=tree.classes)


def _print_skipped(tree: ImageTree) -> None:
    """Print to stderr how many files are not used."""
    counts = [f"{count:,} {reason}" for reason, count in sorted(tree.skipped.items()) if count]
    if counts:
        _print_once(f"{tree.root}: skipped files: {', '.join(counts)}")


@cache
def _print_once(text: str) -> None:
    # The folder is read several times: for the name of the store, for the shards, and to notice changes.
    print(text, file=sys.stderr)


def _divided(images: Sequence[LabeledPath], test_fraction: float) -> dict[str, list[LabeledPath]]:
    """Return train and test: the first images of each class are test images, at least one remains in train."""
    sizes = Counter(number for _, number in images)
    wanted = {number: min(round(test_fraction * size), size - 1) for number, size in sizes.items()}
    splits: dict[str, list[LabeledPath]] = {"train": [], "test": []}
    for path, number in images:
        splits["test" if wanted[number] > 0 else "train"].append((path, number))
        wanted[number] -= 1
    return {split: images for split, images in splits.items() if images}


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
