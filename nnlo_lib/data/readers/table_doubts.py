"""Doubts about a table: what can be trained, but is probably a mistake, as one sentence each."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from nnlo_lib.data.readers.base import Array, EncodedColumn, question_of_similar
from nnlo_lib.data.readers.table_columns import MANY, numbers_of
from nnlo_lib.data.readers.table_options import WHERE, TableOptions

MANY_INPUTS = 100  # of one column
SENTINEL = re.compile("-?9{2,}|-9|-1")  # numbers that stand for missing values in surveys and registers
DAYS = (19_000_101, 21_001_231)  # of dates such as 20261231
EXACT = 2.0**53  # up to which float64 has all whole numbers
LISTED = 5


def texts_of_missing(found: "Counter[str] | None", before: str = ": ") -> str:
    """Return the texts of a column that count as missing, as the end of a sentence; empty if they are empty cells."""
    texts = [
        f"{text!r} in {count:,} rows" for text, count in (found or Counter()).most_common(LISTED) if text
    ]
    return f"{before}{WHERE}.na has {', '.join(texts)}" if texts else ""


def doubts_of_labels(
    table: pd.DataFrame,
    before: pd.DataFrame,
    options: TableOptions,
    classes: Sequence[str],
    labels: Array,
    splits: Array,
    missing: Mapping[str, "Counter[str]"],
) -> Iterator[str]:
    """Yield doubts about classes; `before` has the rows that are left out, too."""
    name = options.label
    if texts := texts_of_missing(missing.get(name)):
        yield (
            f"label {name}{texts} of {len(before):,}, which are no class; list only the other texts there if it is one"
        )
    if options.target == "numbers":
        return
    if gone := sorted({*before[name].dropna().astype(str)} - {*table[name].astype(str)}):
        yield f"label {name}: all rows of {_listed(gone)} are left out, because they have missing values"
    drawn = options.test_fraction and options.split_column is None and before["\0split"].nunique() == 1
    counts = np.bincount(labels, minlength=len(classes))
    without = (
        [each for each in range(len(classes)) if not (splits[labels == each] == "test").any()]
        if drawn
        else []
    )
    if without:
        rows = int(counts[without].min())
        remedy = (
            f"set {WHERE}.test_fraction: {np.ceil(100 / rows) / 100:g}, or add rows"
            if rows > 1
            else "add rows"
        )
        found = _listed([f"{classes[each]} ({counts[each]:,} rows)" for each in without])
        yield (
            f"label {name}: there is no test split, because test_fraction {options.test_fraction:g} of the rows of each class is less "
            f"than one: {found}; {remedy}"
            if len(without) == len(classes)
            else f"label {name}: no test row has the class {found}, because test_fraction {options.test_fraction:g} of its rows is less "
            f"than one; {remedy}"
        )


def doubts_of_columns(
    table: pd.DataFrame,
    options: TableOptions,
    columns: Sequence[EncodedColumn],
    labels: Array,
    missing: Mapping[str, "Counter[str]"],
) -> Iterator[str]:
    """Yield doubts about the columns that are used."""
    for column in columns:
        name, cells = column.name, table[column.name]
        absent = int(cells.isna().sum())
        if absent > len(table) / 2:
            yield (
                f"column {name}: {absent:,} of {len(table):,} cells are missing and become {column.missing}{texts_of_missing(missing.get(name), '; ')}; "
                f"list it in {WHERE}.exclude, or the other texts in {WHERE}.na if it is a category"
            )
        if cells.nunique() == 1 and not absent:
            yield f"column {name} has the value {cells.iloc[0]} in each row; list it in {WHERE}.exclude"
        elif _equals(cells, labels, options):
            yield f"column {name} tells the label: each of its values belongs to one label; list it in {WHERE}.exclude"
        if column.one_hot and len(column.values) > MANY_INPUTS:
            yield (
                f"column {name} gives {len(column.values):,} inputs, one for each text; list it in {WHERE}.exclude, or set "
                f"{WHERE}.categories: integer"
            )
        if (
            column.values
            and isinstance(column.values[0], str)
            and (question := question_of_similar(map(str, column.values)))
        ):
            yield f"column {name}: {question}"
        if column.values:
            continue
        numbers = numbers_of(cells)
        if (np.abs(numbers) > EXACT).any() and (numbers == np.round(numbers)).all():
            yield (
                f"column {name} has whole numbers above 2^53, whose last digits are lost; list it in {WHERE}.exclude, or in "
                f"{WHERE}.categorical, or subtract its smallest number in the file"
            )
        for value in _sentinels(numbers[~np.isnan(numbers)]):
            yield (
                f"column {name} has {value:g} in {(numbers == value).sum():,} rows, unlike its other numbers: if it means a missing value, "
                f"add '{value:g}' to {WHERE}.na"
            )
        if _are_dates(numbers):
            yield (
                f"column {name} has dates as numbers, such as {numbers[0]:.0f}; write the day of the year, or days since a date, or list "
                f"it in {WHERE}.exclude"
            )
        elif name not in options.features and is_identifier(numbers):
            yield (
                f"column {name} is a feature, but may be a row number or an identifier (integers, no two of them "
                f"equal); list it in {WHERE}.exclude, or in {WHERE}.features if it is a feature"
            )


def _are_dates(numbers: Array) -> bool:
    if not ((DAYS[0] <= numbers) & (numbers <= DAYS[1])).all():
        return False
    texts = pd.Series(numbers).map("{:.10g}".format)
    return bool(pd.to_datetime(texts, format="%Y%m%d", errors="coerce").notna().all())


def _sentinels(numbers: Array) -> Iterator[float]:
    """Yield a repeated number such as -999 if it is the only negative one, or 999 if it is far above all others."""
    for value in {numbers.min(initial=0), numbers.max(initial=0)}:
        others = numbers[numbers != value]
        if (
            not SENTINEL.fullmatch(f"{value:g}")
            or len(np.unique(others)) < 3
            or len(numbers) - len(others) < 2
        ):
            continue
        if value < 0 <= others.min() or value - others.max() > np.ptp(others):
            yield float(value)


def is_identifier(numbers: Array) -> bool:
    """Return True if the rows of a column are different integers that grow, or that would repeat if they were drawn from their range.

    Of n numbers drawn from a range of n^2 / 20, two are equal but for one case in exp(10) (the birthday problem).
    """
    different = np.unique(numbers)
    if len(numbers) <= MANY or len(different) < len(numbers) or (numbers != np.round(numbers)).any():
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
