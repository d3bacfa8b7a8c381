"""Doubts about a table: what can be trained, but is probably a mistake, as one sentence each."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from nnlo_lib.data.readers.base import Array, EncodedColumn, question_of_similar
from nnlo_lib.data.readers.table_columns import MANY, numbers_of
from nnlo_lib.data.readers.table_file import LISTED, SPLIT, TableFiles
from nnlo_lib.data.readers.table_options import WHERE, TableOptions

MANY_INPUTS = 100  # of one column
SENTINEL = re.compile("-?9{2,}|-9|-1")  # numbers that stand for missing values in surveys and registers
DAYS = (19_000_101, 21_001_231)  # of dates such as 20261231
EXACT = 2.0**53  # up to which float64 has all whole numbers


def doubts_of_labels(
    reader: TableFiles,
    table: pd.DataFrame,
    before: pd.DataFrame,
    classes: Sequence[str],
    labels: Array,
    splits: Array,
) -> Iterator[str]:
    """Yield doubts about classes; `before` has the rows that are left out, too."""
    options = reader.options
    name = options.label
    if texts := reader.texts_of_missing(name):
        yield f"label {name}{texts} of {len(before):,}, which are no class; list only the other texts there if it is one"
    if options.target == "numbers":
        return
    if gone := sorted({*before[name].dropna().astype(str)} - {*table[name].astype(str)}):
        yield f"label {name}: all rows of {_listed(gone)} are left out, because they have missing values"
    counts, tested = (
        np.bincount(each, minlength=len(classes)) for each in (labels, labels[splits == "test"])
    )
    without = np.flatnonzero(tested == 0)
    is_drawn = options.test_fraction and options.split_column is None and before[SPLIT].nunique() == 1
    if is_drawn and len(without):
        rows, none = int(counts[without].min()), len(without) == len(classes)
        found = _listed([f"{classes[each]} ({counts[each]:,} rows)" for each in without.tolist()])
        what = "there is no test split" if none else f"no test row has the class {found}"
        part = (
            f"of the rows of each class is less than one: {found}" if none else "of its rows is less than one"
        )
        remedy = f"set {WHERE}.test_fraction: {np.ceil(100 / rows) / 100:g}, or " if rows > 1 else ""
        yield f"label {name}: {what}, because test_fraction {options.test_fraction:g} {part}; {remedy}add rows"


def doubts_of_columns(
    reader: TableFiles, table: pd.DataFrame, columns: Sequence[EncodedColumn], labels: Array
) -> Iterator[str]:
    """Yield doubts about the columns that are used."""
    for column in columns:
        for doubt in _doubts_of_column(reader, table[column.name], column, labels):
            yield f"column {column.name}{doubt}"


def _doubts_of_column(
    reader: TableFiles, cells: "pd.Series[str]", column: EncodedColumn, labels: Array
) -> Iterator[str]:
    exclude, absent = f"list it in {WHERE}.exclude", int(cells.isna().sum())
    if absent > len(cells) / 2:
        yield (
            f": {absent:,} of {len(cells):,} cells are missing and become {column.missing}{reader.texts_of_missing(column.name, '; ')}; "
            f"{exclude}, or the other texts in {WHERE}.na if it is a category"
        )
    if cells.nunique() == 1 and not absent:
        yield f" has the value {cells.iloc[0]} in each row; {exclude}"
    elif _equals(cells, labels, reader.options):
        yield f" tells the label: each of its values belongs to one label; {exclude}"
    if column.one_hot and len(column.values) > MANY_INPUTS:
        yield f" gives {len(column.values):,} inputs, one for each text; {exclude}, or set {WHERE}.categories: integer"
    if column.values:
        if question := question_of_similar([each for each in column.values if isinstance(each, str)]):
            yield f": {question}"
        return
    numbers = numbers_of(cells)
    are_whole = bool((numbers == np.round(numbers)).all())
    if are_whole and np.abs(numbers).max() > EXACT:
        yield (
            f" has whole numbers above 2^53, whose last digits are lost; {exclude}, or in {WHERE}.categorical, or subtract its smallest "
            "number in the file"
        )
    for value in _sentinels(numbers[~np.isnan(numbers)]):
        yield (
            f" has {value:g} in {(numbers == value).sum():,} rows, unlike its other numbers: if it means a missing value, add '{value:g}' "
            f"to {WHERE}.na"
        )
    days = pd.Series(numbers[(DAYS[0] <= numbers) & (numbers <= DAYS[1])]).map("{:.0f}".format)
    dates = pd.to_datetime(days, format="%Y%m%d", errors="coerce")
    if are_whole and dates.notna().sum() == len(numbers):
        yield (
            f" has dates as numbers, such as {numbers[0]:.0f}; write the day of the year, or days since a date, or {exclude}"
        )
    elif are_whole and column.name not in reader.options.features and _is_identifier(numbers):
        yield (
            f" is a feature, but may be a row number or an identifier (integers, no two of them equal); {exclude}, or in {WHERE}.features "
            "if it is a feature"
        )


def _sentinels(numbers: Array) -> Iterator[float]:
    """Yield a repeated number such as -999 if it is the only negative one, or 999 if it is far above all others."""
    for value in {numbers.min(initial=0), numbers.max(initial=0)}:
        others = numbers[numbers != value]
        if (
            SENTINEL.fullmatch(f"{value:g}")
            and len(np.unique(others)) > 2
            and len(numbers) - len(others) > 1
            and (value < 0 <= others.min() or value - others.max() > np.ptp(others))
        ):
            yield float(value)


def _is_identifier(numbers: Array) -> bool:
    """Return True if integers are different and grow, or would repeat if they were drawn from their range.

    Of n numbers drawn from a range of n^2 / 20, two are equal but for one case in exp(10) (the birthday problem).
    """
    if len(numbers) <= MANY or len(np.unique(numbers)) < len(numbers):
        return False
    return bool((np.diff(numbers) > 0).all() or np.ptp(numbers) < len(numbers) ** 2 / 20)


def _equals(cells: "pd.Series[str]", labels: Array, options: TableOptions) -> bool:
    """Return True if the cells of a column are the labels, or other names of the classes."""
    if options.target == "numbers":
        return len(cells) > 1 and bool(np.array_equal(numbers_of(cells), labels))
    if len(cells) <= MANY:
        return False
    codes = pd.factorize(cells)[0]
    pairs = len(np.unique(np.stack([codes, labels]), axis=1)[0])
    return pairs == len(np.unique(codes)) == len(np.unique(labels))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
