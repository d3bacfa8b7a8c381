"""What is in one folder of images: folders, images, and counts of what is neither."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.visible import is_visible

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
HIDDEN, OTHER_SUFFIX, SPECIAL = "hidden", "with other suffixes", "neither files nor folders"

Skipped = Counter[str]  # number of files that are not used, by the reason


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
        return cls(_names(kinds, "folder"), _names(kinds, "image"))


def _names(kinds: Iterable[tuple[str, str]], wanted: str) -> tuple[str, ...]:
    return tuple(sorted(name for name, kind in kinds if kind == wanted))


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


def images_below(root: Path, place: str, skipped: Skipped) -> Iterator[str]:
    """Yield the paths below `root` of all images in the folder `place` and its subfolders.

    Args:
        root: folder to which the paths are relative.
        place: path of a folder below `root`.
        skipped: counts of the other files.
    Raises:
        UserError: if a link leads to a folder that contains it.
    """
    return _below(root, place, skipped, (os.path.realpath(root),))


def _below(root: Path, place: str, skipped: Skipped, above: tuple[str, ...]) -> Iterator[str]:
    above = descend(above, root / place)
    listing = Listing.of(root / place, skipped)
    yield from (f"{place}/{name}" for name in listing.images)
    for name in listing.folders:
        yield from _below(root, f"{place}/{name}", skipped, above)


def descend(above: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """Return the real paths `above`, followed by that of `folder`. Raises UserError if it is one of `above`."""
    real = os.path.realpath(folder)
    if real in above:
        raise UserError(f"{folder}: a link to a folder that contains the link; remove the link")
    return (*above, real)
