"""Reader of tables, CSV, Parquet, Arrow or ROOT: one row per sample, one column with its class or the number to learn.

The cells show whether a column has numbers or categories. Medians and categories come from the training rows. The table is read
whole, so it must fit in memory.
"""

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import expanded
from nnlo_lib.data.fetch.record import FileVersion, file_version
from nnlo_lib.data.readers.arrays import refuse_repeated_files
from nnlo_lib.data.readers.base import (
    Array,
    ConversionUnit,
    DatasetContents,
    EncodedColumn,
    SampleBlock,
    shard_ranges,
)
from nnlo_lib.data.readers.table_columns import (
    WHERE,
    Columns,
    encoded_column,
    is_identifier,
    is_name,
    learned_column,
    matching,
    numbers_of,
    place_of,
    refuse_infinite,
)
from nnlo_lib.data.readers.table_file import (
    FILE,
    ROW,
    SPLIT,
    TableFormat,
    holds_arrays,
    saved_dataset_files,
    saved_dataset_splits,
)

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")
SPLITS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test",
}  # fmt: skip
Names = str | Sequence[str]
logger = get_logger(__name__)


@dataclass(frozen=True)
class Rows:
    """The samples of all splits.

    Attributes:
        features: float32 (n, m) by split.
        labels: int64 or float64 (n,) by split.
        classes: names of the classes; empty if the labels are numbers.
        notes: sentences about columns, rows and values that were left out or changed.
        columns: columns in the order of their inputs.
    """

    features: Mapping[str, Array]
    labels: Mapping[str, Array]
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    columns: tuple[EncodedColumn, ...]


def read(
    folder: Path,
    shard_size: int,
    *,
    train: Names,
    label: str,
    test: Names = (),
    validation: Names = (),
    test_fraction: float = 0.2,
    split_column: str | None = None,
    target: Literal["classes", "numbers"] = "classes",
    features: Names = ("*",),
    exclude: Names = (),
    categorical: Names = (),
    categories: Literal["one_hot", "integer"] = "one_hot",
    missing: Literal["refuse", "drop", "median"] = "refuse",
    na: Names = MISSING,
    columns: Names = (),
    delimiter: str | None = None,
    decimal: str = ".",
    tree: str | None = None,
) -> DatasetContents:
    """Return the contents of tables with one row per sample, as float32 of shape (columns,).

    A column whose cells are numbers is one input; other columns are categories. Test rows are drawn by a fixed seed.

    Args:
        folder: folder that relative paths refer to.
        train: files or patterns of the training rows, or a folder of `datasets`, whose splits are kept.
        label: column of the class or of the number to learn.
        test: files of the test split.
        validation: files of the validation split.
        test_fraction: fraction of the rows, of each class, in the test split, without `test` and `split_column`.
        split_column: column with train, validation or test in each row.
        target: classes: each different label is a class; numbers: labels are numbers to learn.
        features: names or patterns of the columns to use.
        exclude: names or patterns of the columns to leave out.
        categorical: names or patterns of the columns whose numbers denote categories.
        categories: one_hot: one column per category, 0 or 1; integer: number of the category in sorted order.
        missing: refuse missing values, drop their rows, or replace them by the median (or most frequent category).
        na: texts of missing values.
        columns: names of the columns of files without a header.
        delimiter: separator of the cells; None: found in the first line.
        decimal: mark in numbers before the fraction, a point or a comma.
        tree: tree of ROOT files; None: the only one.

    Raises:
        UserError: if a file, a column or a cell is not as described; with file, row and column.
    """
    named, unused = {"train": train, "validation": validation, "test": test}, []
    for name in saved_dataset_splits(folder / train) if isinstance(train, str) else ():
        split = SPLITS.get(name.lower())
        if split is None:
            unused.append(f"the split {name} is not used; known: {', '.join(SPLITS)}")
        elif split == "train" or not named[split]:
            named[split] = f"{train}/{name}"
    files = {split: tuple(_files(folder, _tuple(each))) for split, each in named.items() if each}
    refuse_repeated_files(files)
    paths = tuple(path for each in files.values() for path in each)
    choice = Columns(
        label, target, _tuple(features), _tuple(exclude), _tuple(categorical), categories, missing, test_fraction,
        split_column,
    )  # fmt: skip
    form = TableFormat(_tuple(columns), delimiter, decimal, _tuple(na), tree=tree)
    rows = partial(_rows, tuple(files.items()), form, choice, tuple(map(file_version, paths)))
    found = rows()
    units = (
        ConversionUnit(split, name, paths[0], partial(_block, rows, split, start, end), files=paths)
        for split, labels in found.labels.items()
        for name, start, end in shard_ranges(split, len(labels), shard_size, found.features[split][:1].nbytes)
    )
    return DatasetContents(
        tuple(units), classes=len(found.classes) or None, class_names=found.classes, notes=(*unused, *found.notes),
        columns=found.columns,
    )  # fmt: skip


def encode_rows(
    source: Path | pd.DataFrame, columns: Sequence[EncodedColumn], options: Mapping[str, Any]
) -> tuple[Array, Array]:
    """Return the inputs, float32 (n, m), of rows to predict, and the numbers of the rows, counted from 1.

    Columns without use and replaced values are logged.

    Args:
        source: file, folder of `datasets`, or data frame with the columns of the training files; the label may be missing.
        columns: columns of the training.
        options: options of the reader that differ from their defaults.

    Raises:
        UserError: if a column is missing, or a cell cannot be used; with row and column.
    """
    texts = tuple(each.name for each in columns if each.values and isinstance(each.values[0], str))
    form = TableFormat(
        _tuple(options.get("columns", ())), options.get("delimiter"), options.get("decimal", "."),
        _tuple(options.get("na", MISSING)), texts,
        options.get("tree"),
    )  # fmt: skip
    if isinstance(source, pd.DataFrame):
        table = form.of_frame(source)
    else:
        table = form.read({"": saved_dataset_files(source) or [source]})
    names, known = [each.name for each in columns], [*table.columns.drop([SPLIT, FILE, ROW])]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"rename '{close[0]}' if it is meant" if close else f"the columns are {', '.join(known)}"
            raise UserError(f"{table[FILE].iloc[0]}: no column '{name}'; {hint}")
    if unused := ", ".join(name for name in known if name not in names):
        logger.info(f"{table[FILE].iloc[0]}: columns that the model does not use: {unused}")
    encoded = [encoded_column(table, column) for column in columns]
    for note in (note for _, found in encoded for note in found):
        logger.warning(note)
    return np.concatenate([each for each, _ in encoded], axis=1).astype(np.float32), table[ROW].to_numpy()


def _tuple(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _files(folder: Path, wanted: Sequence[str]) -> Iterator[Path]:
    for text in wanted:
        path = folder / expanded(text)
        matches = saved_dataset_files(path)
        if path.is_file():
            matches = [path]
        elif not path.is_dir():
            matches = sorted(folder / each for each in glob.glob(expanded(text), root_dir=folder))
        if not matches:
            reason = (
                "is a folder; set data.reader.train to its files"
                if path.is_dir()
                else "not found; correct the name or pattern"
            )
            raise UserError(f"{WHERE}: {path} {reason}")
        yield from matches


def _block(rows: "partial[Rows]", split: str, start: int, end: int) -> SampleBlock:
    found = rows()
    return SampleBlock((found.features[split][start:end],), found.labels[split][start:end])


@lru_cache(maxsize=1)
def _rows(
    files: tuple[tuple[str, tuple[Path, ...]], ...],
    form: TableFormat,
    choice: Columns,
    _versions: tuple[FileVersion, ...],
) -> Rows:
    """Return the samples of one version of the files, which are read once for all shards."""
    table = form.read(dict(files))
    names, notes = _features(table, choice)
    table, left_out = _without_missing(table, choice, names)
    labels, classes = _labels(table, choice)
    splits = _splits(table, choice, labels, divided=len(files) > 1)
    train = splits == "train"
    if unknown := set(labels[~train]) - set(labels[train]) if classes else ():
        row = int(np.flatnonzero(labels == min(unknown))[0])
        raise UserError(
            f"{place_of(table, row, choice.label)}: no training row has the class {classes[labels[row]]}"
        )
    for name in names:
        if name not in choice.features and is_identifier(table[name]):
            logger.warning(
                f"{table[FILE][0]}: column {name} is a feature, but may be a row number or an identifier (integers, no two of them "
                f"equal); list it in {WHERE}.exclude, or in {WHERE}.features if it is a feature"
            )
    learned = tuple(learned_column(table, name, train, choice) for name in names)
    encoded = [encoded_column(table, column) for column in learned]
    features = np.concatenate([each for each, _ in encoded], axis=1).astype(np.float32)
    present = [split for split in ("train", "validation", "test") if (splits == split).any()]
    return Rows(
        {split: features[splits == split] for split in present},
        {split: labels[splits == split] for split in present},
        classes,
        (*notes, *left_out, *(note for _, found in encoded for note in found)),
        learned,
    )


def _features(table: pd.DataFrame, choice: Columns) -> tuple[list[str], list[str]]:
    """Return the names of the columns to use, and a note on columns without a name."""
    known = [name for name in table.columns if name not in (SPLIT, FILE, ROW)]
    for key, name in (("label", choice.label), ("split_column", choice.split_column)):
        if name is not None and name not in known:
            raise UserError(
                f"{WHERE}.{key}: no column {name}; the columns are {', '.join(filter(None, known))}"
            )
    keys = {"features": choice.features, "exclude": choice.exclude, "categorical": choice.categorical}
    for key, patterns in keys.items():
        for pattern in patterns:
            if not matching(known, (pattern,)):
                raise UserError(
                    f"{WHERE}.{key}: no column {pattern}; the columns are {', '.join(filter(None, known))}"
                )
    left_out = {choice.label, choice.split_column, "", *matching(known, choice.exclude)}
    names = [name for name in matching(known, choice.features) if name not in left_out]
    if not names:
        raise UserError(
            f"{WHERE}.features: no column is left beside the label; the columns are {', '.join(filter(None, known))}"
        )
    for name in (choice.label, *names):
        if holds_arrays(table[name]):
            raise UserError(
                f"{table[FILE][0]}: column {name} has arrays of several lengths, texts or bytes in its rows, not one number or text; write "
                f"columns of numbers, or list it in {WHERE}.exclude"
            )
    # Pandas writes the number of the row so, which would tell the place of a row in sorted files.
    return names, ["a column without a name is not used"] if "" in known else []


def _without_missing(
    table: pd.DataFrame, choice: Columns, names: Sequence[str]
) -> tuple[pd.DataFrame, Iterator[str]]:
    """Return the rows to use, and a note on those that are left out. Raises UserError if a value is missing."""
    needed = [choice.label, *([choice.split_column] if choice.split_column else [])]
    needed += names if choice.missing != "median" else []
    missing = table[needed].isna()
    rows = missing.any(axis=1).to_numpy()
    if choice.missing != "drop":
        for row in np.flatnonzero(rows)[:1]:
            column = needed[int(missing.iloc[row].to_numpy().argmax())]
            remedies = "drop" if column not in names else "drop or median"
            raise UserError(
                f"{place_of(table, row, column)}: missing; {rows.sum():,} of {len(rows):,} rows have missing values: set "
                f"{WHERE}.missing: {remedies}, or exclude the column"
            )
    if rows.all():
        raise UserError(
            f"{table[FILE][0]}: each row has a missing value; set {WHERE}.missing: median, or exclude columns"
        )
    note = f"{rows.sum():,} of {len(rows):,} rows with missing values are left out"
    return table[~rows].reset_index(drop=True), iter([note] if rows.any() else [])


def _labels(table: pd.DataFrame, choice: Columns) -> tuple[Array, tuple[str, ...]]:
    """Return the label of each row, and the names of the classes."""
    cells = table[choice.label]
    numbers = numbers_of(cells)
    if choice.target == "numbers":
        refuse_infinite(table, choice.label, numbers)
        for row in np.flatnonzero(np.isnan(numbers))[:1]:
            raise UserError(
                f"{place_of(table, row, choice.label)}: {cells[row]} is no number to learn; correct it, or set {WHERE}.target: classes"
            )
        return numbers, ()
    if numeric := not np.isnan(numbers).any():
        refuse_infinite(table, choice.label, numbers)
        for row in np.flatnonzero(numbers != np.round(numbers))[:1]:
            raise UserError(
                f"{place_of(table, row, choice.label)}: {cells[row]} is no class number; set {WHERE}.target: numbers to learn numbers"
            )
    # 1 and 1.0 are one class.
    values, labels = np.unique(numbers if numeric else cells.to_numpy(str), return_inverse=True)
    if len(values) < 2 or is_name(len(values), len(table)):
        count = f"{len(values):,} different labels in {len(table):,} rows"
        raise UserError(
            f"{table[FILE][0]}: column {choice.label} has {count}; set {WHERE}.target: numbers if they are numbers to learn, or "
            f"correct {WHERE}.label"
        )
    return labels.astype(np.int64), tuple(f"{value:.0f}" if numeric else str(value) for value in values)


def _splits(table: pd.DataFrame, choice: Columns, labels: Array, divided: bool) -> Array:
    """Return the split of each row: of its file, of the split column, or drawn for the fraction of test rows."""
    splits = table[SPLIT].to_numpy(str)
    if choice.split_column is not None:
        texts = table[choice.split_column].map(lambda cell: str(cell).lower())
        for row in np.flatnonzero(~texts.isin(list(SPLITS)))[:1]:
            raise UserError(
                f"{place_of(table, row, choice.split_column)}: {table[choice.split_column][row]!r} is no split; write train, "
                "validation or test"
            )
        splits = texts.map(SPLITS).to_numpy(str)
    elif not divided:
        draw = np.random.default_rng(0)
        groups = labels if choice.target == "classes" else np.zeros(len(labels))
        for group in np.unique(groups):
            rows = draw.permutation(np.flatnonzero(groups == group))
            splits = splits.astype("<U10")
            splits[rows[: int(len(rows) * choice.test_fraction)]] = "test"
    if "train" not in splits:
        raise UserError(
            f"{table[FILE][0]}: no training row; correct {WHERE}.split_column or {WHERE}.test_fraction"
        )
    return splits
