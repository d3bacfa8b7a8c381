"""The images below a folder by split and class: <split>/<class>/*, or <class>/* without splits."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.image_listing import IMAGE_SUFFIXES, Listing, Skipped, descend, images_below

# The names that Hugging Face datasets knows, in lower case.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
SPLITS = {name: split for split, names in SPLIT_NAMES.items() for name in names}
LAYOUT = "expected <split>/<class>/<image> with the splits train and test (or val), or <class>/<image>"
OUTSIDE = "outside the folders of the classes"

LabeledPath = tuple[str, int]  # path below the folder, class


@dataclass(frozen=True)
class ImageTree:
    """Images below the folder `root`.

    Attributes:
        root: folder of the splits or of the classes.
        classes: names of the classes, sorted.
        splits: images of each split, ordered by the hash of their path, which mixes the classes.
        divided: True if there are folders of splits; otherwise all images are in `train`.
        skipped: number of files that are not used, by the reason.
    """

    root: Path
    classes: tuple[str, ...]
    splits: Mapping[str, Sequence[LabeledPath]]
    divided: bool
    skipped: Skipped

    @classmethod
    def of(cls, folder: Path) -> "ImageTree":
        """Return the images below `folder`. Raises UserError if they are not in one of the two layouts."""
        skipped = Skipped()
        root, listing = _top(folder, skipped)
        prefixes = _prefixes(root, listing)
        listings = _split_listings(root, listing, prefixes, skipped)
        classes = listings["train"].folders
        _check_classes(root / prefixes["train"], classes)
        splits = {
            split: _images(root, prefixes[split], listings[split], classes, skipped) for split in prefixes
        }
        return cls(root, classes, splits, bool(prefixes["train"]), skipped)


def _top(folder: Path, skipped: Skipped) -> tuple[Path, Listing]:
    """Return the folder of the splits or classes: the first with several folders, a split, or images below.

    Archives often have a single top folder, with files such as README.txt beside it.
    """
    listing, above = Listing.of(folder, skipped), descend((), folder)
    while len(listing.folders) == 1 and not listing.images and not _split_names(listing):
        inner = folder / listing.folders[0]
        above = descend(above, inner)
        inside = Listing.of(inner, found := Skipped())
        if not inside.folders:
            break
        skipped.update(found)
        folder, listing = inner, inside
    return folder, listing


def _split_names(listing: Listing) -> list[str]:
    return [name for name in listing.folders if name.lower() in SPLITS]


def _prefixes(folder: Path, listing: Listing) -> dict[str, str]:
    """Return the path prefix of each split below `folder`; {"train": ""} if there are no split folders."""
    names = _split_names(listing)
    if not names:
        return {"train": ""}
    prefixes = {SPLITS[name.lower()]: f"{name}/" for name in names}
    if "train" not in prefixes or len(prefixes) < len(names):
        raise UserError(f"{folder}: the folders {' and '.join(names)} are not a set of splits; {LAYOUT}")
    if "test" not in prefixes and "validation" in prefixes:
        prefixes["test"] = prefixes.pop("validation")
    return prefixes


def _split_listings(
    root: Path, listing: Listing, prefixes: Mapping[str, str], skipped: Skipped
) -> dict[str, Listing]:
    """Return what is in the folder of each split, and count what is outside the folders of the classes.

    Args:
        root: folder of the splits or of the classes.
        listing: contents of `root`.
        prefixes: path prefix of each split below `root`.
        skipped: counts of the files that are not used.
    """
    skipped[OUTSIDE] += len(listing.images)
    if not prefixes["train"]:
        return {"train": listing}
    for name in sorted(set(listing.folders) - set(_split_names(listing))):
        skipped[f"in the folder {name} beside the splits"] += sum(
            len(files) for *_, files in os.walk(root / name)
        )
    listings = {split: Listing.of(root / prefix, skipped) for split, prefix in prefixes.items()}
    skipped[OUTSIDE] += sum(len(each.images) for each in listings.values())
    return listings


def _check_classes(folder: Path, classes: Sequence[str]) -> None:
    if not classes:
        raise UserError(f"{folder}: no folders of images found; {LAYOUT}")
    if len(classes) == 1:
        raise UserError(f"{folder}: only one class of images found ({classes[0]}); {LAYOUT}")


def _images(
    root: Path, prefix: str, listing: Listing, classes: Sequence[str], skipped: Skipped
) -> list[LabeledPath]:
    """Return the images of all classes of a split, ordered by the hash of their path.

    Args:
        root: folder of the splits or of the classes.
        prefix: path of the split below `root` with a slash at the end; empty if there are no splits.
        listing: contents of the folder of the split.
        classes: names of all classes in the order of their numbers.
        skipped: counts of the files that are not used.
    """
    images = []
    for name in listing.folders:
        if name not in classes:
            raise UserError(
                f"{root / prefix}: the class {name} does not exist in train; add it to train, or remove it"
            )
        paths = list(images_below(root, prefix + name, skipped))
        if not paths:
            raise UserError(f"{root / prefix / name}: no image found ({' '.join(IMAGE_SUFFIXES)}); {LAYOUT}")
        _check_no_splits(root, prefix + name, paths)
        images += [(path, classes.index(name)) for path in paths]
    return sorted(images, key=lambda image: _hash(image[0].removeprefix(prefix)))


def _check_no_splits(root: Path, place: str, paths: Sequence[str]) -> None:
    """Raise UserError if a class has folders of several splits, whose images would be mixed.

    Args:
        root: folder of the splits or of the classes.
        place: path of the folder of the class below `root`.
        paths: paths of its images below `root`.
    """
    inner = {path.removeprefix(f"{place}/").partition("/")[0] for path in paths}
    if len({SPLITS[name.lower()] for name in inner if name.lower() in SPLITS}) > 1:
        raise UserError(f"{root / place}: folders of splits inside the folder of a class; {LAYOUT}")


def _hash(path: str) -> bytes:
    # File names on Linux are bytes, which need not be valid UTF-8.
    return hashlib.blake2b(os.fsencode(path), digest_size=8).digest()
