"""Files of the splits of a data set: by name or pattern, and each in one split only."""

import filecmp
import glob
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import expanded, path_remedy
from nnlo_lib.data.readers.base import print_once

WHERE = "data.reader"
EMPTY_BYTES = 100  # compressed shards without a sample are not larger, and equal
COMPARED_BYTES = 1 << 16


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
