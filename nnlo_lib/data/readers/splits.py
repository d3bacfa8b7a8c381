"""Splits of a data set: files by name or pattern, each in one split only; folders of images, by their names and structure."""

import filecmp
import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import expanded, path_remedy
from nnlo_lib.data.fetch.archive import is_visible
from nnlo_lib.data.readers.base import print_once

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
Skipped = Counter[str]  # number of files that are not used, by the reason
SHOWN = 5  # names in a message
WHERE = "data.reader"
EMPTY_BYTES = 100  # compressed shards without a sample are not larger, and equal
COMPARED_BYTES = 1 << 16


class ImageFolder:
    """A folder with its folders and images, sorted; links count as what they lead to. It is read once, when it is asked.

    Raises UserError if it cannot be read, an image is a link that leads nowhere, or a link leads to a folder that contains it.
    """

    def __init__(self, path: Path, above: tuple[str, ...] = ()) -> None:
        """Refer to a folder; `above` are the real paths of the folders that contain it."""
        self.path = path
        self._above = (*above, os.path.realpath(path))

    @cached_property
    def _kinds(self) -> dict[str, str]:
        if self._above[-1] in self._above[:-1]:
            raise UserError(f"{self.path}: a link to a folder that contains the link; remove the link")
        try:
            with os.scandir(self.path) as entries:
                return {entry.name: _kind(entry) for entry in sorted(entries, key=lambda each: each.name)}
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror}") from error

    @cached_property
    def folders(self) -> "dict[str, ImageFolder]":
        """Folders by their name."""
        names = (name for name, kind in self._kinds.items() if kind == "folder")
        return {name: ImageFolder(self.path / name, self._above) for name in names}

    @property
    def images(self) -> list[str]:
        """Names of the images."""
        return [name for name, kind in self._kinds.items() if kind == "image"]

    @property
    def skipped(self) -> Skipped:
        """What is neither a folder nor an image."""
        return Counter(kind for kind in self._kinds.values() if kind not in ("folder", "image"))

    def images_below(self, place: str, skipped: Skipped) -> Iterator[str]:
        """Yield the paths of all images in the folder and its subfolders, beginning with `place`; count other files."""
        skipped.update(self.skipped)
        yield from (os.path.join(place, name) for name in self.images)
        for name, folder in self.folders.items():
            yield from folder.images_below(os.path.join(place, name), skipped)


def _kind(entry: os.DirEntry[str]) -> str:
    if not is_visible(entry.name):
        return "hidden"
    if entry.is_dir():
        return "folder"
    is_image = entry.name.lower().endswith(IMAGE_SUFFIXES)
    if is_image and entry.is_symlink() and not os.path.exists(entry.path):
        raise UserError(f"{entry.path}: the link leads to no file; remove the link or restore the file")
    if not entry.is_file():
        return "neither files nor folders"
    return "image" if is_image else "with other suffixes"


def files_below(folder: Path) -> list[str]:
    """Return the names of all files below a folder that is not used, in which nothing can be wrong."""
    return [name for *_, files in os.walk(folder) for name in files]


def split_names(folder: ImageFolder) -> dict[str, str]:
    """Return the split of each folder that has its name, or, if these are no whole set, its name as a word, as seg_train."""
    exact = {name: SPLITS[name.lower()] for name in folder.folders if name.lower() in SPLITS}
    if len(exact) > 1 and "train" in exact.values():
        return exact
    named = {name: exact.get(name) or _split_in(name) for name in folder.folders}
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


def split_places(root: ImageFolder, given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the folder of each split, relative to `root`: the given ones, or by their names; empty if there are none.

    Raises UserError if a given folder is missing, or folders may be splits as well as classes.
    """
    if given is not None:
        for split, name in given.items():
            if not (root.path / name).is_dir():
                raise UserError(
                    f"data.reader.splits.{split}: no folder {name} in {root.path}; correct the name"
                )
        return {split: name.strip("/") for split, name in given.items()}
    names = split_names(root)
    is_exact = any(name.lower() in SPLITS for name in names)
    with_images = [
        name
        for name in root.folders.keys() - names.keys()
        if (len(names) == 1 or not is_exact)
        and any(file.lower().endswith(IMAGE_SUFFIXES) for file in files_below(root.path / name))
    ]
    if not names or (not is_exact and len(with_images) > 1):
        _refuse_repeated_subfolders(root)
        return {}
    # A single folder, such as `extra`, is left out with a note; several look like classes.
    if len(with_images) > 1:
        [name] = names
        raise UserError(
            f"{root.path}: the folder {name} is taken for a split because of its name, but {', '.join(sorted(with_images))} "
            f"beside it have images, too; if it is a class, rename it, such as class-{name}, or set data.reader.splits: {{}}; {LAYOUT}"
        )
    places = {split: name for name, split in names.items()}
    if "train" not in places or len(places) < len(names):
        raise UserError(
            f"{root.path}: the folders {' and '.join(names)} are not a set of splits; {LAYOUT}; name others by "
            "data.reader.splits, or, if these folders are classes, set it to {}"
        )
    if "test" not in places and "validation" in places:
        places["test"] = places.pop("validation")
    return places


def _refuse_repeated_subfolders(root: ImageFolder) -> None:
    """Raise UserError if the same subfolders are below several folders, which may be splits as well as classes."""
    inside = {name: _subfolders(folder) for name, folder in root.folders.items()}
    uses = Counter(name for names in inside.values() for name in names)
    repeated = sorted(name for name, count in uses.items() if count > 1)
    # Folders of splits inside of classes are refused later.
    has_splits = any(name.lower() in SPLITS for name in repeated)
    if len(repeated) < 2 or 2 * len(repeated) < len(uses) or has_splits:
        return
    places = [name for name, names in inside.items() if names & {*repeated}]
    if _are_numbered(repeated) and not _are_numbered(places):  # parts of classes
        return
    raise UserError(
        f"{root.path}: {', '.join(places[:SHOWN])} have the same subfolders ({', '.join(repeated[:SHOWN])}): if these are the "
        f"classes, name the folders of the splits, such as data.reader.splits: {{train: {places[0]}, test: {places[1]}}}; if "
        f"{places[0]} and {places[1]} are classes, set data.reader.splits: {{}}"
    )


def _are_numbered(names: Sequence[str]) -> bool:
    """Return True for names such as part1 and part2."""
    stems = {name.rstrip("0123456789") for name in names}
    return len(stems) == 1 and stems != {""} and not stems & {*names}


def _subfolders(folder: ImageFolder) -> set[str]:
    """Return the names of the folders in a folder without images, or in its only folder."""
    if folder.images:
        return set()
    only = [*folder.folders.values()]
    return _subfolders(only[0]) if len(only) == 1 else {*folder.folders}


def matching_files(folder: Path, text: str, where: str) -> list[Path]:
    """Return the file `text` in `folder`, or the files that match it as a pattern, sorted. Raises UserError if there is none."""
    if (path := folder / expanded(text)).is_file():
        return [path]
    # With root_dir, special characters in the path of the folder are not part of the pattern.
    matches = sorted(glob.glob(expanded(text), root_dir=folder, recursive=True))
    if found := [folder / match for match in matches if (folder / match).is_file()]:
        return found
    correct = "; set the key to its files" if path.is_dir() else "; correct the pattern"
    raise UserError(f"{where}: no file in {folder} matches {text}{path_remedy(text, correct)}")


def refuse_repeated_files(splits: Mapping[str, Iterable[Path]]) -> None:
    """Raise UserError if a file is part of two splits, or twice of one; a link or a second name counts as the file.

    Prints a warning if a split has a copy of a file of another split.
    """
    seen: dict[tuple[int, int], tuple[str, Path]] = {}
    contents: dict[tuple[int, str], tuple[str, Path]] = {}
    for split, path in ((split, path) for split, paths in splits.items() for path in paths):
        status = os.stat(path)
        before, first = seen.setdefault((status.st_dev, status.st_ino), (split, path))
        if first is not path:
            same = f"{path}" if first == path else f"{path}, the same file as {first},"
            if before == split:
                raise UserError(
                    f"{WHERE}: {same} is listed twice for {split}, so that its samples would count twice; list it once"
                )
            raise UserError(
                f"{WHERE}: {same} is in the splits {before} and {split}, so that {split} would measure samples of {before}; "
                f"name the files of each split so that none is in both"
            )
        if status.st_size > EMPTY_BYTES:
            before, first = contents.setdefault((status.st_size, _ends(path)), (split, path))
            if before != split and filecmp.cmp(path, first, shallow=False):
                print_once(
                    f"nnlo: warning: {WHERE}: {path} of the split {split} is a copy of {first} of {before}, so that {split} measures "
                    f"samples of {before}"
                )


def _ends(path: Path) -> str:
    """Return a hash of the first and the last bytes of a file, which tells most files of one size apart."""
    with path.open("rb") as file:
        start = file.read(COMPARED_BYTES)
        file.seek(-min(COMPARED_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return hashlib.sha256(start + file.read()).hexdigest()
