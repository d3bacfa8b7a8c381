"""Which files a split is made of: a text list, a pattern, a list of paths, or one file."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.errors import UserError

Wanted = str | Sequence[str]
LISTS = (".txt", ".list", ".lst")


def files(folder: Path, wanted: Wanted) -> list[tuple[Path, ...]]:
    """Return the files of each entry, usually one; of NPY two, features and labels.

    A text list has an entry a line, # starts a comment (NNLO's format); its paths are looked up beside the list, then
    in `folder`. `~` and environment variables are expanded. Raises UserError naming list and line of a missing file.
    """
    if not isinstance(wanted, str):
        return [_entry(text, [folder], "data.reader") for text in wanted]
    path = folder / _expanded(wanted)
    if path.suffix in LISTS:
        return _listed(path, folder)
    if glob.has_magic(wanted):
        found = sorted(glob.glob(str(path), recursive=True))
        if not found:
            raise UserError(f"data.reader: no file in {folder} is like {wanted}")
        return [(Path(each),) for each in found]
    return [_entry(wanted, [folder], "data.reader")]


def _listed(path: Path, folder: Path) -> list[tuple[Path, ...]]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the list {path}: {error}; is data.reader right?") from error
    entries = [
        _entry(text, [path.parent, folder], f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if (text := line.partition("#")[0].strip())
    ]
    if not entries:
        raise UserError(f"{path} lists no file")
    return entries


def _entry(text: str, folders: Sequence[Path], where: str) -> tuple[Path, ...]:
    """Find one file, or if there is none of that name the several that the words name."""
    if whole := _found(text, folders):
        return (whole,)
    paths = [_found(word, folders) for word in text.split()]
    for word, path in zip(text.split(), paths, strict=True):
        if path is None:
            raise UserError(
                f"{where}: there is no file {word} in {' or '.join(map(str, dict.fromkeys(folders)))}"
            )
    return tuple(path for path in paths if path)


def _found(text: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if (path := folder / _expanded(text)).is_file()), None)


def _expanded(text: str) -> str:
    return os.path.expanduser(os.path.expandvars(text))
