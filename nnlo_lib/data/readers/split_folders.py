"""Folders of splits and of classes: what is in a folder, and which of its folders are splits, by their names and structure."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import is_visible

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# The names that Hugging Face datasets knows, in lower case.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
SPLITS = {name: split for split, names in SPLIT_NAMES.items() for name in names}
WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
LAYOUT = "expected <split>/<class>/<image> with the splits train and test (or val), or <class>/<image>"
HIDDEN, OTHER_SUFFIX, SPECIAL = "hidden", "with other suffixes", "neither files nor folders"
Skipped = Counter[str]  # number of files that are not used, by the reason
SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Listing:
    """Names of the folders and of the images in one folder, sorted; links count as what they lead to."""

    folders: tuple[str, ...]
    images: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, skipped: Skipped) -> "Listing":
        """Return the listing of `folder`, and count in `skipped` what is neither a folder nor an image.

        Raises UserError if the folder cannot be read, or if an image is a link that leads nowhere.
        """
        try:
            with os.scandir(folder) as entries:
                kinds = [(entry.name, _kind(entry)) for entry in entries]
        except OSError as error:
            raise UserError(f"cannot read {folder}: {error.strerror}") from error
        skipped.update(kind for _, kind in kinds if kind not in ("folder", "image"))
        folders, images = (
            tuple(sorted(name for name, kind in kinds if kind == wanted)) for wanted in ("folder", "image")
        )
        return cls(folders, images)


def _kind(entry: os.DirEntry[str]) -> str:
    if not is_visible(entry.name):
        return HIDDEN
    if entry.is_dir():
        return "folder"
    image = entry.name.lower().endswith(IMAGE_SUFFIXES)
    if image and entry.is_symlink() and not os.path.exists(entry.path):
        raise UserError(f"{entry.path}: the link leads to no file; remove the link or restore the file")
    if not entry.is_file():
        return SPECIAL
    return "image" if image else OTHER_SUFFIX


def split_names(listing: Listing) -> dict[str, str]:
    """Return the split of each folder that has its name, or, if these are no whole set, its name as a word, as seg_train."""
    exact = {name: SPLITS[name.lower()] for name in listing.folders if name.lower() in SPLITS}
    if len(exact) > 1 and "train" in exact.values():
        return exact
    named = {name: exact.get(name) or _split_in(name) for name in listing.folders}
    found = {
        name: split
        for name, split in named.items()
        if split and (name in exact or split not in exact.values())
    }
    return found if len({*found.values()}) > 1 and "train" in found.values() else exact


def _split_in(name: str) -> str:
    """Return the split that a word of the name denotes; empty if none or several do."""
    found = {SPLITS[word.lower()] for word in WORD.findall(name) if word.lower() in SPLITS}
    return found.pop() if len(found) == 1 else ""


def is_same_split(name: str, other: str) -> bool:
    """Return True if a folder's name only repeats the other."""
    return name == other or (bool(_split_in(name)) and _split_in(name) == _split_in(other))


def given_prefixes(root: Path, splits: Mapping[str, str]) -> dict[str, str]:
    """Return the path prefix of each given split. Raises UserError if a folder is missing."""
    for split, name in splits.items():
        if not (root / name).is_dir():
            raise UserError(f"data.reader.splits.{split}: no folder {name} in {root}; correct the name")
    return {split: f"{name.strip('/')}/" for split, name in splits.items()} or {"train": ""}


def prefixes_of(folder: Path, listing: Listing) -> dict[str, str]:
    """Return the path prefix of each split below `folder`; {"train": ""} if there are no split folders."""
    names = split_names(listing)
    is_exact = any(name.lower() in SPLITS for name in names)
    others = [name for name in listing.folders if name not in names]
    with_images = [
        name
        for name in others
        if (len(names) == 1 or not is_exact)
        and any(
            each.lower().endswith(IMAGE_SUFFIXES) for *_, files in os.walk(folder / name) for each in files
        )
    ]
    if not names or (not is_exact and len(with_images) > 1):
        _refuse_repeated_subfolders(folder, listing)
        return {"train": ""}
    # A single folder, such as `extra`, is left out with a note; several look like classes.
    if len(with_images) > 1:
        [name] = names
        raise UserError(
            f"{folder}: the folder {name} is taken for a split because of its name, but {', '.join(with_images)} "
            f"beside it have images, too; if it is a class, rename it, such as class-{name}, or set data.reader.splits: {{}}; {LAYOUT}"
        )
    prefixes = {split: f"{name}/" for name, split in names.items()}
    if "train" not in prefixes or len(prefixes) < len(names):
        raise UserError(
            f"{folder}: the folders {' and '.join(names)} are not a set of splits; {LAYOUT}; name others by "
            "data.reader.splits, or, if these folders are classes, set it to {}"
        )
    if "test" not in prefixes and "validation" in prefixes:
        prefixes["test"] = prefixes.pop("validation")
    return prefixes


def _refuse_repeated_subfolders(folder: Path, listing: Listing) -> None:
    """Raise UserError if the same subfolders are below several folders, which may be splits as well as classes."""
    inside = {name: _subfolders(folder / name) for name in listing.folders}
    uses = Counter(name for names in inside.values() for name in names)
    repeated = sorted(name for name, count in uses.items() if count > 1)
    # Folders of splits inside of classes are refused later.
    if (
        len(repeated) < 2
        or 2 * len(repeated) < len(uses)
        or SPLITS.keys() & {name.lower() for name in repeated}
    ):
        return
    places = [name for name, names in inside.items() if names & {*repeated}]
    if _are_numbered(repeated) and not _are_numbered(places):  # parts of classes
        return
    raise UserError(
        f"{folder}: {', '.join(places[:SHOWN])} have the same subfolders ({', '.join(repeated[:SHOWN])}): if these are the "
        f"classes, name the folders of the splits, such as data.reader.splits: {{train: {places[0]}, test: {places[1]}}}; if "
        f"{places[0]} and {places[1]} are classes, set data.reader.splits: {{}}"
    )


def _are_numbered(names: Sequence[str]) -> bool:
    """Return True for names such as part1 and part2."""
    stems = {name.rstrip("0123456789") for name in names}
    return len(stems) == 1 and stems != {""} and not stems & {*names}


def _subfolders(folder: Path) -> set[str]:
    """Return the names of the folders in a folder without images, or in its only folder."""
    names = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if (kind := _kind(entry)) == "image":
                return set()
            if kind == "folder":
                names.add(entry.name)
    return _subfolders(folder / names.pop()) if len(names) == 1 else names
