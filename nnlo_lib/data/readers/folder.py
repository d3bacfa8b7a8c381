"""Reader `folder`: images in one folder per class, <split>/<class>/*, or <class>/* without splits."""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
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
from nnlo_lib.data.readers.splits import (
    IMAGE_SUFFIXES,
    LAYOUT,
    SPLITS,
    ImageFolder,
    Skipped,
    files_below,
    is_same_split,
    split_names,
    split_places,
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
    """Return the contents of the image folders. Raises UserError if they are in no known layout.

    Classes are the sorted names of the folders; samples are ordered by the hash of their path, which mixes the classes. Test images
    that are drawn (`test_fraction` of each class) are those with the smallest hashes: adding an image to a class moves at most one
    other between training and test. The first images of the classes decide whether the store has bytes or float32 in 0..1.
    """
    tree = ImageTree.of(folder, splits)
    dtype, notes = _stored_type(tree, size if resize != "none" else 0)
    if skipped := [f"{count:,} {reason}" for reason, count in sorted(tree.skipped.items()) if count]:
        notes.insert(0, f"skipped files: {', '.join(skipped)}")
    divided = tree.splits if tree.divided else _divided(tree.splits["train"], test_fraction)
    tested = {number for _, number in divided.get("test", ())}
    untested = [name for number, name in enumerate(tree.classes) if number not in tested]
    if tested and untested:
        shown = ", ".join(untested[:5]) + (" ..." if len(untested) > 5 else "")
        notes.append(f"no test image has the class {shown}; add images")
    for name in [name for name in tree.classes if name.lower() in TARGETS][:1]:
        notes.append(
            f"the class {name} may be the targets of the other images, not a class; inputs with targets are read by "
            "data.reader: {name: arrays}"
        )
    for note in notes:
        # Below the working directory as one path, so that a note is printed once, whatever the source is called.
        is_below = Path.cwd() in tree.root.absolute().parents
        print_once(f"{os.path.relpath(tree.root) if is_below else tree.root}: {note}")
    units, sample_bytes = [], size * size * (3 if colour == "rgb" else 1) * dtype.itemsize
    for split, images in divided.items():
        for name, start, end in shard_ranges(split, len(images), shard_size, sample_bytes):
            part = images[start:end]
            block = partial(read_images, tree.root, part, resize, size, colour, on_corrupt == "skip", dtype)
            files = tuple(tree.root / path for path, _ in part)
            units.append(ConversionUnit(split, name, tree.root, block, files=files))
    return DatasetContents(tuple(units), class_names=tree.classes, notes=tuple(notes))


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
    """Images of each split below the folder `root`; if it is not `divided` by folders of splits, all are in `train`."""

    root: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[LabeledPath]]
    divided: bool
    skipped: Skipped

    @classmethod
    def of(cls, path: Path, given: Mapping[str, str] | None = None) -> "ImageTree":
        """Return the images below `path`, in the given folders of splits. Raises UserError if they are in no known layout."""
        root, skipped = ImageFolder(path), Skipped()
        # Archives often have a single top folder, with files such as README.txt beside it.
        while len(root.folders) == 1 and not root.images and not split_names(root):
            [inner] = root.folders.values()
            if not inner.folders:
                break
            skipped.update(root.skipped)
            root = inner
        places = split_places(root, given)
        skipped.update({**root.skipped, OUTSIDE: len(root.images)})
        used = {place.partition("/")[0] for place in places.values()}
        for name in {*root.folders} - used if places else ():
            skipped[f"in the folder {name} beside the splits"] = len(files_below(root.path / name))
        folders = {split: _split_folder(root, split, place, skipped) for split, place in places.items()}
        folders = folders or {"train": root}
        classes = tuple(dict.fromkeys(map(composed, folders["train"].folders)))
        _check_classes(folders["train"].path, classes)
        images = {split: _images(root.path, each, classes, skipped) for split, each in folders.items()}
        return cls(root.path, classes, images, bool(places), skipped)


def _split_folder(root: ImageFolder, split: str, place: str, skipped: Skipped) -> ImageFolder:
    """Return the folder of a split, and count what is in it outside the folders of the classes."""
    folder = ImageFolder(root.path / place)
    skipped.update(folder.skipped)
    # Folders may only repeat their split, as seg_train/seg_train.
    while len(folder.folders) == 1 and not folder.images and is_same_split(next(iter(folder.folders)), place):
        [folder] = folder.folders.values()
        skipped.update(folder.skipped)
    skipped[OUTSIDE] += len(folder.images)
    if split != "train" and not folder.folders:
        found = f"{len(folder.images):,} images, but" if folder.images else "empty,"
        raise UserError(
            f"{folder.path}: {found} no folder of a class; sort images into {folder.path}/<class>/, or remove the folder; {LAYOUT}"
        )
    return folder


def _check_classes(folder: Path, classes: Sequence[str]) -> None:
    if not classes:
        inner = [name for name in sorted(os.listdir(folder)) if name.lower().endswith(ARCHIVE_SUFFIXES)]
        archive = (
            f"it has the archive {inner[0]}: extract it, and set data.source to the result" if inner else ""
        )
        raise UserError(f"{folder}: no folders of images found; {archive or LAYOUT}")
    if len(classes) == 1:
        raise UserError(f"{folder}: only one class of images found ({classes[0]}); {LAYOUT}")


def _images(root: Path, split: ImageFolder, classes: Sequence[str], skipped: Skipped) -> list[LabeledPath]:
    """Return the images of all classes of a split, ordered by the hash of their path in it."""
    images = list[LabeledPath]()
    known = {*map(composed, split.folders)} & {*classes}
    for name, folder in split.folders.items():
        if composed(name) not in classes:
            near = [each for each in classes if look_alike(each) == look_alike(name)]
            remedy = "; add it to train, or remove it"
            if near:
                remedy = f", but {near[0]}; write the name as there"
            elif not known:
                remedy = (
                    f", nor any other folder here; if its images are not sorted, sort them into {split.path}/<class>/, or leave out the "
                    f"folder {split.path.relative_to(root)}"
                )
            raise UserError(f"{split.path}: the class {name} does not exist in train{remedy}")
        paths = [*folder.images_below(name, skipped)]
        if not paths:
            raise UserError(f"{folder.path}: no image found ({' '.join(IMAGE_SUFFIXES)}); {LAYOUT}")
        # The images of several splits in a class would be mixed.
        inner = {path.split("/")[1].lower() for path in paths}
        if len({SPLITS[each] for each in inner if each in SPLITS}) > 1:
            raise UserError(f"{folder.path}: folders of splits inside the folder of a class; {LAYOUT}")
        images += [(path, classes.index(composed(name))) for path in paths]
    # File names on Linux are bytes, which need not be valid UTF-8.
    hashes = {path: hashlib.blake2b(os.fsencode(path), digest_size=8).digest() for path, _ in images}
    place = os.path.relpath(split.path, root)
    return [
        (os.path.normpath(os.path.join(place, path)), number)
        for path, number in sorted(images, key=lambda image: hashes[image[0]])
    ]
