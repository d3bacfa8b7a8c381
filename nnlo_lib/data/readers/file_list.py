"""Resolution of text lists, patterns and paths to the files of a split."""

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_file import is_array_file

FileSelection = str | Sequence[str]
Entry = tuple[Path, ...]
MAX_LIST_BYTES = 1 << 26  # about a million paths
COMMENT = re.compile(r"(^|\s)#.*")
SHOWN = 300  # characters of a file name shown in an error
WHERE = "data.reader"


def resolve_files(folder: Path, wanted: FileSelection) -> list[Entry]:
    """Return the files of each entry: one file, or two NPY files with features and labels.

    `wanted` is a text list, a pattern, a file, or several of these. A text list has NNLO's format: one path
    per line, `#` starts a comment, paths are relative to the folder of the list or else to `folder`. `~` and
    environment variables are expanded. Raises UserError with the list and the line if a file is missing.
    """
    texts = [wanted] if isinstance(wanted, str) else wanted
    entries = [entry for text in texts for entry in _entries(folder, text)]
    if not entries:
        raise UserError(f"{WHERE}: the list of files of a split is empty; list a file, or remove the split")
    return entries


def refuse_repeated_files(splits: Mapping[str, Iterable[Path]]) -> None:
    """Raise UserError if a file is part of two splits, or twice of one; a link or a second name counts as the file.

    Args:
        splits: files with samples, by split.
    """
    seen: dict[tuple[int, int], tuple[str, Path]] = {}
    for split, paths in splits.items():
        for path in paths:
            status = os.stat(path)
            before, first = seen.setdefault((status.st_dev, status.st_ino), (split, path))
            if first is path:
                continue
            same = f"{path}" if first == path else f"{path}, the same file as {first},"
            if before == split:
                raise UserError(
                    f"{WHERE}: {same} is listed twice for {split}, so that its samples would count twice; list it once"
                )
            raise UserError(
                f"{WHERE}: {same} is in the splits {before} and {split}, so that {split} would measure samples of {before}; "
                f"name the files of each split so that none is in both"
            )


def _entries(folder: Path, text: str) -> list[Entry]:
    # An existing file comes first, because its name can contain the special characters of a pattern.
    path = _found(text, [folder])
    if path is None and glob.has_magic(text):
        return _matching(folder, text)
    if path is not None and not is_array_file(path):
        return _listed(path, folder)
    return [_entry(text, [folder], WHERE)]


def _matching(folder: Path, pattern: str) -> list[Entry]:
    # With root_dir, special characters in the path of the folder are not part of the pattern.
    matches = sorted(glob.glob(_expanded(pattern), root_dir=folder, recursive=True))
    found: list[Entry] = [(folder / match,) for match in matches if (folder / match).is_file()]
    if not found:
        raise UserError(f"{WHERE}: no file in {folder} matches {pattern}; correct the pattern")
    return found


def _listed(path: Path, folder: Path) -> list[Entry]:
    entries = [
        _entry(text, [path.parent, folder], f"{path}:{number}")
        for number, line in enumerate(_text(path).splitlines(), start=1)
        if (text := COMMENT.sub("", line).strip())
    ]
    if not entries:
        raise UserError(f"{path}: the list contains no file; write one path per line")
    return entries


def _text(path: Path) -> str:
    try:
        # A zero byte marks what is no text list: too large here, not UTF-8 below, or binary by its content.
        # Editors on Windows write a byte order mark, which utf-8-sig removes.
        text = "\0" if path.stat().st_size > MAX_LIST_BYTES else path.read_text("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read the list {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(
            f"{path}: not an HDF5, NPZ or NPY file and not a text list of such files; correct {WHERE}"
        )
    return text


def _entry(text: str, folders: Sequence[Path], where: str) -> Entry:
    """Return the file `text`, or, if it does not exist, the two files in `text` separated by a space.

    Args:
        text: path of a file, or paths of two NPY files.
        folders: folders that a relative path is searched in, in this order.
        where: key or line of the list, for error messages.
    """
    # The whole text first, because a path can contain spaces.
    if whole := _found(text, folders):
        return (whole,)
    words = text.split()
    paths = [_found(word, folders) for word in words]
    missing = [word for word, path in zip(words, paths, strict=True) if path is None]
    if missing or not words:
        name = text if len(missing) == len(words) else missing[0]
        places = " or ".join(map(str, dict.fromkeys(folders)))
        raise UserError(f"{where}: file '{name[:SHOWN]}' not found in {places}")
    if len(words) != 2:
        raise UserError(f"{where}: {len(words)} files on one line; write each file on its own line")
    return tuple(path for path in paths if path)


def _found(text: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if os.path.isfile(path := folder / _expanded(text))), None)


def _expanded(text: str) -> str:
    return os.path.expanduser(os.path.expandvars(text))
