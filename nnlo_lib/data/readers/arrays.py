"""Reader `arrays`: the user's own HDF5, NPZ and NPY files, in lists or by patterns, as in NNLO and mpi_learn."""

import filecmp
import glob
import hashlib
import math
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import decoded, expanded, path_remedy
from nnlo_lib.data.readers.array_file import is_array_file, refuse_other_file
from nnlo_lib.data.readers.array_formats import Unwritten, stored_type
from nnlo_lib.data.readers.array_source import (
    ArraySource,
    BlockReader,
    FileSlice,
    check_same_layout,
    open_source,
)
from nnlo_lib.data.readers.base import (
    ConversionUnit,
    DatasetContents,
    FilePart,
    NonFinite,
    print_once,
    shard_ranges,
)
from nnlo_lib.data.readers.labels import find_classes, refuse_labels_of_wrong_shape
from nnlo_lib.data.readers.user_reader import is_nnlo_module, reader_options_of_module

FileSelection = str | Sequence[str]
Entry = tuple[Path, ...]
MAX_LIST_BYTES = 1 << 26  # about a million paths
COMMENT = re.compile(r"(^|\s)#.*")
EMPTY_BYTES = 100  # compressed shards without a sample are not larger, and equal
COMPARED_BYTES = 1 << 16
SHOWN = 300  # characters of a file name shown in an error
WHERE = "data.reader"
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv")  # not .txt, which is a list of files


def read(
    folder: Path,
    shard_size: int,
    *,
    train: FileSelection,
    test: FileSelection | None = None,
    validation: FileSelection | None = None,
    features: FileSelection = "features",
    labels: str = "labels",
    one_hot: bool = True,
    first_class: int | None = None,
    channels: str = "first",
    adaptor: str | None = None,
    label_adaptor: str | None = None,
    dtype: str | None = None,
    non_finite: NonFinite = "error",
    unwritten: Unwritten = "error",
) -> DatasetContents:
    """Return the contents of the files of each split.

    Labels that denote classes are read here, because all shards and splits need the same classes. Text becomes
    the number of its class in alphabetical order; -1 and 1 become 0 and 1.
    HDF5 and NPY are read by row range; an array of an NPZ is read as a whole and must fit in memory.

    Args:
        train: a text list of files, a pattern, a file, or several of these; or a module of NNLO, `path.py`,
            which defines the files, `features`, `labels` and the adaptors in place of the arguments.
        one_hot: True treats all labels as classes and also accepts integral floats and one-hot rows
            (n, classes); False treats all labels as regression targets, except text and class numbers (n,) or
            (n, 1).
        channels: "last" moves the last axis of samples of three axes or more to the front.
        adaptor: "path.py:function", called with some samples of a single file. The function gets the array
            (n, ...) of a single input or the tuple of several arrays, and returns as many arrays with n rows.
        label_adaptor: "path.py:function", called with the labels of some samples of a single file; returns one
            array with as many rows, to which `one_hot` and `first_class` refer.

    Raises UserError if files are missing or damaged, or if their arrays differ in name, sample shape or type. Reading
    a unit raises it if labels are not classes despite `one_hot`.
    """
    if is_nnlo_module(train):
        return read(
            folder,
            shard_size,
            test=test,
            one_hot=one_hot,
            first_class=first_class,
            channels=channels,
            dtype=dtype,
            non_finite=non_finite,
            unwritten=unwritten,
            **reader_options_of_module(str(train)),
        )
    for key, function in (("adaptor", adaptor), ("label_adaptor", label_adaptor)):
        if function and not Path(file := function.rpartition(":")[0]).is_file():
            raise UserError(f"data.reader.{key}: file not found: {file}; set it to path.py:function")
    keys = [features] if isinstance(features, str) else features
    wanted = {"train": train, "test": test, "validation": validation}
    entries = {split: resolve_files(folder, each) for split, each in wanted.items() if each is not None}
    refuse_repeated_files({split: [paths[-1] for paths in each] for split, each in entries.items()})
    splits = {
        split: [open_source(paths, keys, labels, label_adaptor, unwritten) for paths in each]
        for split, each in entries.items()
    }
    first, *others = (source for sources in splits.values() for source in sources)
    refuse_labels_of_wrong_shape(first.labels, one_hot)
    for other in others:
        check_same_layout(other, first, dtype)
    # The store has the labels at its top level, under the last part of their name.
    names, target = tuple(array.name for array in first.inputs), labels.strip("/").rpartition("/")[2]
    for name in names:
        # In the HDF5 store, an array and a group cannot have the same name.
        if names.count(name) > 1 or name == target or name.startswith(f"{target}/"):
            raise UserError(
                f"data.reader: the name {name} is used for two arrays; list each feature once, and give the labels another name"
            )
    files = {split: [source.labels for source in sources] for split, sources in splits.items()}
    labeled = find_classes(files, one_hot, first_class)
    reader = BlockReader(labeled.rule, adaptor, channels, dtype)
    return DatasetContents(
        tuple(
            unit for split, sources in splits.items() for unit in _units(split, sources, shard_size, reader)
        ),
        inputs=names,
        labels=target,
        first_class=labeled.first_class,
        classes=labeled.classes,
        class_names=labeled.class_names,
        non_finite=non_finite,
        notes=(*_changed_types(first, reader), *labeled.notes),
    )


def _units(
    split: str, sources: Sequence[ArraySource], shard_size: int, reader: BlockReader
) -> Iterator[ConversionUnit]:
    ends = list(accumulate(source.samples for source in sources))
    size = sum(
        math.prod(array.shape[1:]) * stored_type(array.dtype, reader.dtype).itemsize
        for array in sources[0].inputs
    )
    for name, start, end in shard_ranges(split, ends[-1], shard_size, size):
        # Only the files of this unit, because units are sent to other processes.
        pieces = _pieces(sources, ends, start, end)
        parts = tuple(FilePart(piece.labels.path, piece.start, piece.samples) for piece in pieces)
        files = dict.fromkeys(array.path for piece in pieces for array in (*piece.inputs, piece.labels))
        yield ConversionUnit(
            split, name, parts[0].path, partial(reader.read, pieces), parts, files=tuple(files)
        )


def _pieces(sources: Sequence[ArraySource], ends: Sequence[int], start: int, end: int) -> list[FileSlice]:
    """Return the file slices of samples start..end-1; `ends` has the number of samples in files 0..i for each file i."""
    pieces, index = [], bisect_right(ends, start)
    while start < end:
        source, before, last = sources[index], ends[index] - sources[index].samples, min(end, ends[index])
        if start < last:
            pieces.append(FileSlice(source.inputs, source.labels, start - before, last - before))
        start, index = last, index + 1
    return pieces


def _changed_types(source: ArraySource, reader: BlockReader) -> Iterator[str]:
    """Yield a note for each input that the store has in another type; the type after an adaptor is not known."""
    for array in source.inputs:
        stored = stored_type(array.dtype, reader.dtype)
        if stored != array.dtype and not reader.adaptor:
            yield f"{array.name} is {array.dtype} in the files and {stored} in the store"


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


def _entries(folder: Path, text: str) -> list[Entry]:
    # An existing file comes first, because its name can contain the special characters of a pattern.
    path = _found(text, [folder])
    if path is None and glob.has_magic(text):
        # With root_dir, special characters in the path of the folder are not part of the pattern.
        matches = sorted(glob.glob(expanded(text), root_dir=folder, recursive=True))
        found: list[Entry] = [(folder / match,) for match in matches if (folder / match).is_file()]
        if not found:
            raise UserError(
                f"{WHERE}: no file in {folder} matches {text}{path_remedy(text, '; correct the pattern')}"
            )
        return found
    if path is not None and path.name.lower().endswith(TABLE_SUFFIXES):
        raise UserError(
            f"{path}: a table, no file of arrays; set data.reader: {{name: table, label: COLUMN}} (docs/guides/data.md#tables)"
        )
    if path is not None and not is_array_file(path):
        return _listed(path, folder)
    return [_entry(text, [folder], WHERE)]


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
        refuse_other_file(path)
        # A zero byte marks what is no text list: too large here, not UTF-8 below, or binary by its content.
        text = "\0" if path.stat().st_size > MAX_LIST_BYTES else decoded(path.read_bytes())
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
    """Return the file `text`, or, if it does not exist, the two NPY files in `text` separated by a space.

    Relative paths are searched in the folders in order. Errors begin with `where`, a key or the line of a list.
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
        raise UserError(f"{where}: file '{name[:SHOWN]}' not found in {places}{path_remedy(name, '')}")
    if len(words) != 2:
        raise UserError(f"{where}: {len(words)} files on one line; write each file on its own line")
    return tuple(path for path in paths if path)


def _found(text: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if os.path.isfile(path := folder / expanded(text))), None)


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
