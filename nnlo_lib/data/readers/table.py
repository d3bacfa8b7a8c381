"""Reader of tables, CSV, Parquet, Arrow or ROOT: one row per sample, one column with its class or the number to learn.

The cells show whether a column has numbers or categories. Medians and categories come from the training rows. The table is read
whole, so it must fit in memory.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import expanded
from nnlo_lib.data.fetch.record import Stamp, stamp_of
from nnlo_lib.data.readers.base import (
    Array,
    ConversionUnit,
    DatasetContents,
    EncodedColumn,
    SampleBlock,
    composed,
    look_alike,
    shard_ranges,
    warn_once,
)
from nnlo_lib.data.readers.splits import matching_files, refuse_repeated_files
from nnlo_lib.data.readers.table_columns import (
    collected,
    encoded_column,
    is_name,
    learned_column,
    needs_float64,
    numbers_of,
    place_of,
    refuse_first,
    refuse_infinite,
)
from nnlo_lib.data.readers.table_doubts import doubts_of_columns, doubts_of_labels
from nnlo_lib.data.readers.table_file import (
    FILE,
    ROW,
    SPLIT,
    TableFiles,
    saved_dataset_files,
    saved_dataset_splits,
)
from nnlo_lib.data.readers.table_options import FILES, WHERE, TableOptions, matching

SPLITS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test",
}  # fmt: skip
logger = get_logger(__name__)


@dataclass(frozen=True)
class Rows:
    """Features (n, m), labels (n,) and weights (n,) by split, contents without units, doubts, changes of a ConversionUnit."""

    features: Mapping[str, Array]
    labels: Mapping[str, Array]
    weights: Mapping[str, Array]  # empty without weights
    contents: DatasetContents
    doubts: tuple[str, ...]
    changes: tuple[str, ...]


def read(folder: Path, shard_size: int, **keys: Any) -> DatasetContents:
    """Return the contents of tables with one row per sample, as (columns,) of float32, or float64 if float32 loses digits.

    Raises UserError with all problems of files, columns and cells.
    """
    options, unused = TableOptions.of(keys), []
    named: dict[str, tuple[str, ...]] = {split: getattr(options, split) for split in FILES}
    for place in options.train if len(options.train) == 1 else ():
        for name in saved_dataset_splits(folder / place):
            split = SPLITS.get(name.lower())
            if split is None:
                unused.append(f"the split {name} is not used; known: {', '.join(SPLITS)}")
            elif split == "train" or not named[split]:
                named[split] = (f"{place}/{name}",)
    files = {split: tuple(_files(folder, named[split])) for split in ("train", "validation", "test")}
    files = {split: each for split, each in files.items() if each}
    refuse_repeated_files(files)
    paths = tuple(path for each in files.values() for path in each)
    rows = partial(_rows, tuple(files.items()), options, tuple(map(stamp_of, paths)))
    found = rows()
    for doubt in found.doubts:
        warn_once(f"{paths[0]}: {doubt}")
    units = (
        ConversionUnit(
            split,
            name,
            paths[0],
            partial(_block, rows, split, start, end),
            files=paths,
            changes=found.changes,
        )
        for split, labels in found.labels.items()
        for name, start, end in shard_ranges(split, len(labels), shard_size, found.features[split][:1].nbytes)
    )
    return replace(found.contents, units=tuple(units), notes=(*unused, *found.contents.notes))


def encode_rows(
    source: Path | pd.DataFrame,
    columns: Sequence[EncodedColumn],
    keys: Mapping[str, Any],
    dtype: str = "float64",
) -> tuple[Array, pd.DataFrame]:
    """Return the inputs (n, m) of rows to predict; and their numbers, `row` counted from 1, with the columns without use.

    `source` is a file, a folder of `datasets`, or a data frame. Columns without use and replaced values are logged. Raises UserError
    with row and column if columns are missing, or cells cannot be used.
    """
    wanted = {composed(each.name): each for each in columns}
    numbers = [name for name, each in wanted.items() if not each.values or isinstance(each.values[0], float)]
    reader = TableFiles(TableOptions.of(keys), numbers=numbers)
    if isinstance(source, pd.DataFrame):
        table = reader.of_frame(source)
    else:
        table = reader.read({"": saved_dataset_files(source) or [source]})
    where, known = table[FILE].iloc[0], [*table.columns.drop([SPLIT, FILE, ROW])]
    problems, parts = list[str](), list[Array]()
    for name, column in wanted.items():
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"rename '{close[0]}' if it is meant" if close else f"the columns are {', '.join(known)}"
            problems.append(f"{where}: no column '{name}'; {hint}")
            continue
        with collected(problems):
            part, notes = encoded_column(table, column)
            parts.append(part)
            for note in notes:
                logger.warning(note)
    if problems:
        raise UserError("\n  ".join(problems))
    unused = [name for name in known if name not in wanted]
    if unused:
        logger.info(f"{where}: columns that the model does not use: {', '.join(unused)}")
    features = np.concatenate(parts, axis=1).astype(dtype)
    return features, table[[ROW, *unused]].rename(columns={ROW: "row", "row": "row in the file"})


def _files(folder: Path, wanted: Sequence[str]) -> Iterator[Path]:
    for text in wanted:
        matches = saved_dataset_files(folder / expanded(text)) or matching_files(folder, text, WHERE)
        # Below the working directory as one path, so that a table is read once, whatever the source is called.
        yield from (
            Path(os.path.relpath(each)) if Path.cwd() in each.absolute().parents else each for each in matches
        )


def _block(rows: "partial[Rows]", split: str, start: int, end: int) -> SampleBlock:
    found = rows()
    weights = found.weights[split][start:end] if found.weights else None
    return SampleBlock((found.features[split][start:end],), found.labels[split][start:end], weights=weights)


@lru_cache(maxsize=1)
def _rows(
    files: tuple[tuple[str, tuple[Path, ...]], ...], options: TableOptions, _versions: tuple[Stamp, ...]
) -> Rows:
    """Return the samples of one version of the files, which are read once for all shards."""
    reader, problems, learned = TableFiles(options), list[str](), list[EncodedColumn]()
    read_rows = reader.read(dict(files))
    names = _features(read_rows, options, problems)
    table, notes = _without_missing(reader, read_rows, names, problems)
    labels, classes, splits = np.zeros(len(table)), tuple[str, ...](), np.full(len(table), "train")
    if options.label in table:
        with collected(problems):
            labels, classes = _labels(table, options)
            splits = _splits(table, options, labels, divided=len(files) > 1)
    train, weights = splits == "train", None
    if options.weight and options.weight in table:
        with collected(problems):
            weights = numbers_of(table[options.weight])
            refuse_infinite(table, options.weight, weights)
            # A loss with weights below 0 has no lower bound, and scikit-learn's curves are not defined.
            sentence = f"{{}} is no weight of at least 0; write absolute weights, or leave out the row or {WHERE}.weight"
            refuse_first(table, options.weight, ~(weights >= 0), sentence)
    for label in sorted({*labels[~train]} - {*labels[train]}) if classes else ():
        name = classes[label]
        near = [each for each in classes if look_alike(each) == look_alike(name) and each != name]
        hint = (
            f", but {near[0]!r}: if they are one class, write it the same in all files"
            if near
            else "; add training rows of it, or remove its rows"
        )
        place = place_of(table, int(np.flatnonzero(labels == label)[0]), options.label)
        problems.append(f"{place}: no training row has the class {name!r}{hint}")
    for name in names:
        with collected(problems):
            learned.append(learned_column(table, name, train, options))
    if problems:
        raise UserError("\n  ".join(problems))
    encoded = [encoded_column(table, each, reader.texts_of_missing(each.name, "; ")) for each in learned]
    features = np.concatenate([part for part, _ in encoded], axis=1)
    large = [each.name for each, (part, _) in zip(learned, encoded, strict=True) if needs_float64(part)]
    if large:
        reader.changes.add("float64")
        notes.append(f"the inputs are float64, because float32 loses digits of {', '.join(large)}")
    else:
        features = features.astype(np.float32)
    present = [split for split in ("train", "validation", "test") if (splits == split).any()]
    return Rows(
        {split: features[splits == split] for split in present},
        {split: labels[splits == split] for split in present},
        {} if weights is None else {split: weights[splits == split] for split in present},
        DatasetContents(
            (),
            classes=len(classes) or None,
            class_names=classes,
            notes=(*reader.notes, *notes, *(note for _, found in encoded for note in found)),
            columns=tuple(learned),
        ),
        (
            *doubts_of_labels(reader, table, read_rows, classes, labels, splits),
            *doubts_of_columns(reader, table, learned, labels),
        ),
        tuple(sorted(reader.changes)),
    )


def _features(table: pd.DataFrame, options: TableOptions, problems: list[str]) -> list[str]:
    """Return the names of the columns to use; add names and patterns without a column to the problems."""
    known = [*table.columns.drop([SPLIT, FILE, ROW])]
    shown = f"the columns are {', '.join(known)}"
    for key in ("label", "split_column", "weight", "features", "exclude", "categorical"):
        value = getattr(options, key)
        # A column is meant by its name, several by patterns.
        for each in [value] if isinstance(value, str) else value or ():
            if each not in known and (isinstance(value, str) or not matching(known, (each,))):
                problems.append(f"{WHERE}.{key}: no column {each}; {shown}")
    left_out = {options.label, options.split_column, options.weight, *matching(known, options.exclude)}
    names = [name for name in matching(known, options.features) if name not in left_out]
    if not names:
        problems.append(f"{WHERE}.features: no column is left beside the label; {shown}")
    return names


def _without_missing(
    reader: TableFiles, table: pd.DataFrame, names: Sequence[str], problems: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows to use, and notes on those that are left out; add a sentence on missing values to the problems.

    Rows without a label or a weight are left out with `missing: median`, too, because nothing can replace it.
    """
    options = reader.options
    needed = [name for name in (options.label, options.split_column, options.weight) if name in table]
    # Columns without a value are refused by their own sentence.
    others = [name for name in names if table[name].notna().any()]
    missing = table[needed if options.missing == "median" else [*needed, *others]].isna()
    rows = missing.any(axis=1).to_numpy()
    if not rows.any():
        return table, []
    absent, left = missing.sum(), len(rows) - rows.sum()
    listed = ", ".join(f"{name}{reader.texts_of_missing(name)}" for name in absent[absent > 0].index)
    if options.missing != "refuse" and left:
        note = f"{rows.sum():,} of {len(rows):,} rows with missing values are left out ({listed})"
        return table[~rows].reset_index(drop=True), [note]
    row = int(np.flatnonzero(rows)[0])
    first = missing.columns[int(missing.iloc[row].to_numpy().argmax())]
    remedy = (
        "drop" if not absent.drop(needed).any() else "drop or median" if left >= len(rows) / 2 else "median"
    )
    problems.append(
        f"{place_of(table, row, first)}: missing; {rows.sum():,} of {len(rows):,} rows have missing values ({listed}): set "
        f"{WHERE}.missing: {remedy}, or exclude the column (drop leaves {left:,} rows)"
    )
    # The other problems are those of the rows with a label.
    unlabeled = table[needed].isna().any(axis=1).to_numpy()
    return table[~unlabeled].reset_index(drop=True) if not unlabeled.all() else table, []


def _labels(table: pd.DataFrame, options: TableOptions) -> tuple[Array, tuple[str, ...]]:
    """Return the label of each row, and the names of the classes."""
    name, cells = options.label, table[options.label]
    numbers = numbers_of(cells)
    are_numbers = not np.isnan(numbers).any()
    if options.target == "numbers" or are_numbers:
        refuse_infinite(table, name, numbers)
    if options.target == "numbers":
        sentence = f"{{}} is no number to learn; correct it, or set {WHERE}.target: classes"
        refuse_first(table, name, np.isnan(numbers), sentence)
        return numbers, ()
    if are_numbers:
        sentence = f"{{}} is no class number; set {WHERE}.target: numbers to learn numbers"
        refuse_first(table, name, numbers != np.round(numbers), sentence)
    # 1 and 1.0 are one class.
    values, labels = np.unique(numbers if are_numbers else cells.to_numpy(str), return_inverse=True)
    if len(values) < 2 or is_name(len(values), len(table)):
        raise UserError(
            f"{table[FILE].iloc[0]}: column {name} has {len(values):,} different labels in {len(table):,} rows; set {WHERE}.target: numbers "
            f"if they are numbers to learn, or correct {WHERE}.label"
        )
    return labels.astype(np.int64), tuple(f"{value:.0f}" if are_numbers else str(value) for value in values)


def _splits(table: pd.DataFrame, options: TableOptions, labels: Array, divided: bool) -> Array:
    """Return the split of each row: of its file, of the split column, or drawn for the fraction of test rows."""
    splits, column = table[SPLIT].to_numpy("<U10"), options.split_column
    if column is not None:
        texts = table[column].map(lambda cell: str(cell).lower())
        sentence = "{!r} is no split; write train, validation or test"
        refuse_first(table, column, ~texts.isin(list(SPLITS)).to_numpy(), sentence)
        splits = texts.map(SPLITS).to_numpy(str)
    elif not divided:
        draw = np.random.default_rng(0)
        groups = labels if options.target == "classes" else np.zeros(len(labels))
        for group in np.unique(groups):
            rows = draw.permutation(np.flatnonzero(groups == group))
            splits[rows[: int(len(rows) * options.test_fraction)]] = "test"
    if "train" not in splits:
        raise UserError(
            f"{table[FILE].iloc[0]}: no training row; correct {WHERE}.split_column or {WHERE}.test_fraction"
        )
    return splits
