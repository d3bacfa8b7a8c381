"""Reader `folder`: images in one folder per class, <split>/<class>/*, or <class>/* without splits."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import (
    ConversionUnit,
    DatasetContents,
    SampleBlock,
    composed,
    look_alike,
    print_once,
    shard_ranges,
)
from nnlo_lib.data.readers.image import ColorMode, ImageError, Resize, as_type, decode, image_header, resized
from nnlo_lib.data.readers.split_folders import (
    IMAGE_SUFFIXES,
    LAYOUT,
    SPLITS,
    Listing,
    Skipped,
    given_prefixes,
    is_same_split,
    prefixes_of,
    split_names,
)

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".rar", ".7z")
TARGETS = ("mask", "masks", "annotations", "groundtruth", "ground_truth", "segmentation")
OUTSIDE = "outside the folders of the classes"
LabeledPath = tuple[str, int]  # path below the folder, class


def read(
    folder: Path,
    shard_size: int,
    *,
    size: int = 224,
    resize: Resize = "standard",
    colour: ColorMode = "rgb",
    test_fraction: float = 0.2,
    splits: Mapping[str, str] | None = None,
    on_corrupt: Literal["error", "skip"] = "error",
) -> DatasetContents:
    """Return the contents of the image folders.

    Classes are the sorted names of the folders; samples are ordered by the hash of their path, which mixes
    the classes. The usual names of splits in any case are known (`SPLIT_NAMES`), also as words of names such as
    seg_train and seg_test; if the only split beside `train` is `validation`, it is used as the test split. Links are
    followed. Hidden files and files with other suffixes are ignored; their numbers are printed.
    The first images of the classes decide whether the store has bytes or float32 in 0..1.

    Args:
        test_fraction: fraction of each class that becomes the test split if there are no split folders. These
            are the images with the smallest hashes, so adding an image to a class moves at most one other
            image between training and test.

    Raises UserError if there is only one class, if a class is empty, if a split has a class that train does not have,
    if folders may be splits or classes, or if a link leads to nothing or to a folder that contains it.
    """
    tree = ImageTree.of(folder, splits)
    counts = [f"{count:,} {reason}" for reason, count in sorted(tree.skipped.items()) if count]
    dtype, remarks = _stored_type(tree, size if resize != "none" else 0)
    divided = tree.splits if tree.divided else _divided(tree.splits["train"], test_fraction)
    tested = {number for _, number in divided.get("test", ())}
    untested = [name for number, name in enumerate(tree.classes) if number not in tested]
    if tested and untested:
        shown = ", ".join(untested[:5]) + (" ..." if len(untested) > 5 else "")
        remarks.append(f"no test image has the class {shown}; add images")
    if targets := [name for name in tree.classes if name.lower() in TARGETS]:
        remarks.append(
            f"the class {targets[0]} may be the targets of the other images, not a class; inputs with targets are read by "
            "data.reader: {name: arrays}"
        )
    notes = (*([f"skipped files: {', '.join(counts)}"] if counts else []), *remarks)
    for note in notes:
        # Below the working directory as one path, so that a note is printed once, whatever the source is called.
        is_below = Path.cwd() in tree.root.absolute().parents
        print_once(f"{os.path.relpath(tree.root) if is_below else tree.root}: {note}")
    units, sample_bytes = [], size * size * (3 if colour == "rgb" else 1) * dtype.itemsize
    for split, images in divided.items():
        for name, start, end in shard_ranges(split, len(images), shard_size, sample_bytes):
            block = partial(
                read_images, tree.root, images[start:end], resize, size, colour, on_corrupt == "skip", dtype
            )
            files = tuple(tree.root / path for path, _ in images[start:end])
            units.append(ConversionUnit(split, name, tree.root, block, files=files))
    return DatasetContents(tuple(units), class_names=tree.classes, notes=notes)


def _stored_type(tree: "ImageTree", size: int) -> tuple[np.dtype[Any], list[str]]:
    """Return the type of the stored pixels, by the first training image of each class, and notes on these images."""
    firsts = {number: path for path, number in reversed(tree.splits["train"])}
    headers = [found for path in firsts.values() if (found := image_header(tree.root / path))]
    notes = [f"images {loss}" for loss in sorted({loss for each in headers for loss in each.losses})]
    if (longest := max((each.shorter for each in headers), default=size)) < size:
        notes.append(
            f"images are enlarged: the shorter side of the first of each class has at most {longest} pixels, but "
            f"data.reader.size is {size}; set data.reader.size: {longest}"
        )
    if not any(each.has_16_bits for each in headers):
        return np.dtype(np.uint8), notes
    depth = "images of 16 bits are stored as float32, value / 65,535; if they use a small part of it, set data.normalize: standard"
    return np.dtype(np.float32), [*notes, depth]


def _divided(images: Sequence[LabeledPath], test_fraction: float) -> dict[str, list[LabeledPath]]:
    """Return train and test: the first images of each class are test images, at least one remains in train."""
    sizes = Counter(number for _, number in images)
    wanted = {number: min(round(test_fraction * size), size - 1) for number, size in sizes.items()}
    splits: dict[str, list[LabeledPath]] = {"train": [], "test": []}
    for path, number in images:
        splits["test" if wanted[number] > 0 else "train"].append((path, number))
        wanted[number] -= 1
    return {split: images for split, images in splits.items() if images}


def read_images(
    folder: Path,
    images: Sequence[LabeledPath],
    resize: Resize,
    size: int,
    colour: ColorMode,
    skip: bool,
    dtype: np.dtype[Any],
) -> SampleBlock:
    """Return images as they are stored, with their numbers. Raises UserError if one is damaged, unless `skip`."""
    pixels, labels, skipped = [], [], []
    for path, number in images:
        try:
            image = resized(decode((folder / path).read_bytes(), colour), resize, size)
            pixels.append(as_type(image, dtype))
            labels.append(number)
        except OSError as error:
            raise UserError(f"cannot read {folder / path}: {error.strerror}") from error
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


@dataclass(frozen=True)
class ImageTree:
    """Images below the folder `root`.

    Attributes:
        splits: images of each split, ordered by the hash of their path, which mixes the classes.
        divided: True if there are folders of splits; otherwise all images are in `train`.
    """

    root: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[LabeledPath]]
    divided: bool
    skipped: Skipped

    @classmethod
    def of(cls, folder: Path, splits: Mapping[str, str] | None = None) -> "ImageTree":
        """Return the images below `folder`, in the given folders of splits. Raises UserError if they are in no known layout."""
        skipped = Skipped()
        root, listing = _top(folder, skipped)
        prefixes = prefixes_of(root, listing) if splits is None else given_prefixes(root, splits)
        listings = _split_listings(root, listing, prefixes, skipped)
        classes = tuple(dict.fromkeys(map(composed, listings["train"].folders)))
        _check_classes(root / prefixes["train"], classes)
        images = {
            split: _images(root, prefixes[split], listings[split], classes, skipped) for split in prefixes
        }
        return cls(root, classes, images, bool(prefixes["train"]), skipped)


def _top(folder: Path, skipped: Skipped) -> tuple[Path, Listing]:
    """Return the folder of the splits or classes: the first with several folders, a split, or images below.

    Archives often have a single top folder, with files such as README.txt beside it.
    """
    listing, above = Listing.of(folder, skipped), _descend((), folder)
    while len(listing.folders) == 1 and not listing.images and not split_names(listing):
        inner = folder / listing.folders[0]
        above = _descend(above, inner)
        inside = Listing.of(inner, found := Skipped())
        if not inside.folders:
            break
        skipped.update(found)
        folder, listing = inner, inside
    return folder, listing


def _split_listings(
    root: Path, listing: Listing, prefixes: dict[str, str], skipped: Skipped
) -> dict[str, Listing]:
    """Return what is in the folder of each split, and count what is outside the folders of the classes.

    Prefixes of folders that only repeat their split, as seg_train/seg_train, become longer.
    """
    skipped[OUTSIDE] += len(listing.images)
    if not prefixes["train"]:
        return {"train": listing}
    for name in sorted(set(listing.folders) - {prefix.partition("/")[0] for prefix in prefixes.values()}):
        skipped[f"in the folder {name} beside the splits"] += sum(
            len(files) for *_, files in os.walk(root / name)
        )
    listings = {}
    for split, prefix in prefixes.items():
        found = Listing.of(root / prefix, skipped)
        own = prefix.strip("/")
        while len(found.folders) == 1 and not found.images and is_same_split(found.folders[0], own):
            prefix += f"{found.folders[0]}/"
            found = Listing.of(root / prefix, skipped)
        prefixes[split], listings[split] = prefix, found
        if split != "train" and not found.folders:
            count = len(found.images)
            raise UserError(
                f"{root / prefix}: {f'{count:,} images, but' if count else 'empty,'} no folder of a class; sort images into "
                f"{root / prefix}/<class>/, or remove the folder; {LAYOUT}"
            )
    skipped[OUTSIDE] += sum(len(each.images) for each in listings.values())
    return listings


def _check_classes(folder: Path, classes: Sequence[str]) -> None:
    if not classes:
        inner = [name for name in sorted(os.listdir(folder)) if name.lower().endswith(ARCHIVE_SUFFIXES)]
        remedy = (
            f"it has the archive {inner[0]}: extract it, and set data.source to the result"
            if inner
            else LAYOUT
        )
        raise UserError(f"{folder}: no folders of images found; {remedy}")
    if len(classes) == 1:
        raise UserError(f"{folder}: only one class of images found ({classes[0]}); {LAYOUT}")


def _images(
    root: Path, prefix: str, listing: Listing, classes: Sequence[str], skipped: Skipped
) -> list[LabeledPath]:
    """Return the images of all classes of a split, ordered by the hash of their path."""
    images = []
    for name in listing.folders:
        if composed(name) not in classes:
            place = root / prefix
            unsorted = (
                ""
                if {*map(composed, listing.folders)} & {*classes}
                else (
                    f", nor any other folder here; if its images are not sorted, sort them into {place}/<class>/, or leave "
                    f"out the folder {prefix.strip('/')}"
                )
            )
            near = [each for each in classes if look_alike(each) == look_alike(name)]
            unsorted = f", but {near[0]}; write the name as there" if near else unsorted
            raise UserError(
                f"{place}: the class {name} does not exist in train{unsorted or '; add it to train, or remove it'}"
            )
        paths = list(images_below(root, prefix + name, skipped, _descend((), root)))
        if not paths:
            raise UserError(f"{root / prefix / name}: no image found ({' '.join(IMAGE_SUFFIXES)}); {LAYOUT}")
        # The images of several splits in a class would be mixed.
        inner = {path.removeprefix(f"{prefix}{name}/").partition("/")[0].lower() for path in paths}
        if len({SPLITS[each] for each in inner if each in SPLITS}) > 1:
            raise UserError(
                f"{root / prefix / name}: folders of splits inside the folder of a class; {LAYOUT}"
            )
        images += [(path, classes.index(composed(name))) for path in paths]
    # File names on Linux are bytes, which need not be valid UTF-8.
    names = {path: os.fsencode(path.removeprefix(prefix)) for path, _ in images}
    return sorted(images, key=lambda image: hashlib.blake2b(names[image[0]], digest_size=8).digest())


def images_below(root: Path, place: str, skipped: Skipped, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the paths below `root` of all images in its folder `place` and the subfolders; count other files.

    `above` are the real paths of the folders above. Raises UserError if a link leads to a folder that contains it.
    """
    above = _descend(above, root / place)
    listing = Listing.of(root / place, skipped)
    yield from (os.path.join(place, name) for name in listing.images)
    for name in listing.folders:
        yield from images_below(root, os.path.join(place, name), skipped, above)


def _descend(above: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return the real paths `above`, followed by the real path of `folder`. Raises UserError if it is one of `above`."""
    real = os.path.realpath(folder)
    if real in above:
        raise UserError(f"{folder}: a link to a folder that contains the link; remove the link")
    return (*above, real)
