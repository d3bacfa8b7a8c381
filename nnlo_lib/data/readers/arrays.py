"""Reader `arrays`: the user's own HDF5, NPZ and NPY files, in lists or by patterns, as in NNLO and mpi_learn."""

import glob
import math
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import decoded, expanded, path_remedy
from nnlo_lib.data.readers.array_file import is_array_file, refuse_other_file
from nnlo_lib.data.readers.array_formats import stored_type
from nnlo_lib.data.readers.array_source import (
    ArraysOptions,
    ArraySource,
    BlockReader,
    FileSelection,
    check_same_layout,
    open_source,
)
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, FilePart, shard_ranges
from nnlo_lib.data.readers.labels import find_rule
from nnlo_lib.data.readers.splits import matching_files, refuse_repeated_files
from nnlo_lib.data.readers.user_reader import is_nnlo_module, reader_options_of_module

Entry = tuple[Path, ...]
MAX_LIST_BYTES = 1 << 26  # about a million paths
COMMENT = re.compile(r"(^|\s)#.*")
SHOWN = 300  # characters of a file name shown in an error
WHERE = "data.reader"
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv")  # not .txt, which is a list of files


def read(folder: Path, shard_size: int, **keys: Any) -> DatasetContents:
    """Return the contents of the files of each split.

    Labels that denote classes are read here, because all shards and splits need the same classes. Raises UserError if files are
    missing or damaged, or if their arrays differ in name, sample shape or type.
    """
    options = ArraysOptions(**keys)
    if is_nnlo_module(options.train):
        options = replace(options, **reader_options_of_module(str(options.train)))
    for key in ("adaptor", "label_adaptor"):
        function = getattr(options, key)
        if function and not Path(file := function.rpartition(":")[0]).is_file():
            raise UserError(f"{WHERE}.{key}: file not found: {file}; set it to path.py:function")
    wanted = {"train": options.train, "test": options.test, "validation": options.validation}
    entries = {split: resolve_files(folder, each) for split, each in wanted.items() if each is not None}
    refuse_repeated_files({split: [paths[-1] for paths in each] for split, each in entries.items()})
    splits = {split: [open_source(paths, options) for paths in each] for split, each in entries.items()}
    first, *others = (source for sources in splits.values() for source in sources)
    for other in others:
        check_same_layout(other, first, options.dtype)
    # The store has the labels at its top level, under the last part of their name.
    names, target = tuple(array.name for array in first.inputs), options.labels.strip("/").rpartition("/")[2]
    for name in names:
        # In the HDF5 store, an array and a group cannot have the same name.
        if names.count(name) > 1 or name == target or name.startswith(f"{target}/"):
            raise UserError(
                f"{WHERE}: the name {name} is used for two arrays; list each feature once, and give the labels another name"
            )
    files = {split: [source.labels for source in sources] for split, sources in splits.items()}
    rule = find_rule(files, options.one_hot, options.first_class)
    # Without the names of the files, which would be sent to the processes with each unit.
    reader = BlockReader(rule, replace(options, train=(), test=None, validation=None))
    stored = {array: stored_type(array.dtype, options.dtype) for array in first.inputs}
    changed = [
        f"{array.name} is {array.dtype} in the files and {kind} in the store"
        for array, kind in stored.items()
        if kind != array.dtype and not options.adaptor
    ]
    size = sum(math.prod(array.shape[1:]) * kind.itemsize for array, kind in stored.items())
    return DatasetContents(
        tuple(
            unit
            for split, sources in splits.items()
            for unit in _units(split, sources, shard_size, size, reader)
        ),
        inputs=names,
        labels=target,
        first_class=rule.first_class,
        classes=rule.classes,
        class_names=tuple(map(str, rule.values)),
        non_finite=options.non_finite,
        notes=(*changed, *rule.notes),
    )


def _units(
    split: str, sources: Sequence[ArraySource], shard_size: int, size: int, reader: BlockReader
) -> Iterator[ConversionUnit]:
    begins = [0, *accumulate(source.samples for source in sources)]
    for name, start, end in shard_ranges(split, begins[-1], shard_size, size):
        # Only the files of this unit, because units are sent to other processes.
        pieces = [
            replace(source, start=max(start - before, 0), end=min(end - before, source.samples))
            for place in range(bisect_right(begins, start) - 1, bisect_left(begins, end))
            if (source := sources[place]).samples and (before := begins[place]) < end
        ]
        parts = tuple(FilePart(piece.labels.path, piece.start, piece.samples) for piece in pieces)
        files = tuple(dict.fromkeys(array.path for piece in pieces for array in piece.arrays))
        yield ConversionUnit(split, name, parts[0].path, partial(reader.read, pieces), parts, files)


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
        return [(match,) for match in matching_files(folder, text, WHERE)]
    if path is None or (is_array_file(path) and not path.name.lower().endswith(TABLE_SUFFIXES)):
        return [_entry(text, [folder], WHERE)]
    if path.name.lower().endswith(TABLE_SUFFIXES):
        raise UserError(
            f"{path}: a table, no file of arrays; set data.reader: {{name: table, label: COLUMN}} (docs/guides/data.md#tables)"
        )
    entries = [
        _entry(line, [path.parent, folder], f"{path}:{number}")
        for number, content in enumerate(_text(path).splitlines(), start=1)
        if (line := COMMENT.sub("", content).strip())
    ]
    if not entries:
        raise UserError(f"{path}: the list contains no file; write one path per line")
    return entries


def _text(path: Path) -> str:
    refuse_other_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LIST_BYTES + 1)
        if len(content) <= MAX_LIST_BYTES and "\0" not in (text := decoded(content)):
            return text
        reason = "it is too large, or has zero bytes"
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error)
    raise UserError(
        f"{path}: not an HDF5, NPZ or NPY file and not a text list of such files ({reason}); correct {WHERE}"
    )


def _entry(text: str, folders: Sequence[Path], where: str) -> Entry:
    """Return the file `text`, or, if it does not exist, the two NPY files in `text` separated by a space.

    Relative paths are searched in the folders in order. Errors begin with `where`, a key or the line of a list.
    """
    # The whole text first, because a path can contain spaces.
    for words in ([text], text.split()):
        paths = [path for word in words if (path := _found(word, folders))]
        if 0 < len(words) == len(paths) <= 2:
            return tuple(paths)
    missing = [word for word in text.split() if not _found(word, folders)]
    if text.split() and not missing:
        raise UserError(f"{where}: {len(text.split())} files on one line; write each file on its own line")
    name = missing[0] if 0 < len(missing) < len(text.split()) else text
    places = " or ".join(map(str, dict.fromkeys(folders)))
    raise UserError(f"{where}: file '{name[:SHOWN]}' not found in {places}{path_remedy(name, '')}")


def _found(text: str, folders: Sequence[Path]) -> Path | None:
    return next((path for folder in folders if os.path.isfile(path := folder / expanded(text))), None)
