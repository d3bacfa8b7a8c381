"""Columns of a table as inputs: numbers, or categories as 0 and 1 or as integers.

Cells decide: a column is numbers if each cell is one, and categories if none is. What is neither is refused.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array, EncodedColumn, composed
from nnlo_lib.data.readers.table_file import FILE, ROW, holds_arrays
from nnlo_lib.data.readers.table_options import WHERE, TableOptions, matching

MANY = 20  # more categories than this, and more than half the number of rows, are names or numbers
SIGNS = r"[$€£%,'’\s\u2212]"  # signs beside the digits of amounts, and separators of thousands
# Units beside a blank, and Fortran's exponents, whose D becomes an E.
UNITS = r"(?<=\d) +[^\W\d_]{1,3}[²³]?$"
EXPONENT = r"(?<=[\d.])[dD](?=[+-]?\d+$)"
DATE = (
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2})?"
    r"|\d{1,2}[. -]{1,2}[^\W\d_]{3,9}[., -]{1,2}\d{2,4}|[^\W\d_]{3,9}[. ]{1,2}\d{1,2}, ?\d{4}"
)
LOST_DEVIATIONS = 1e-3  # rounding of fractions that standardized numbers may have


@contextmanager
def collected(problems: list[str]) -> Iterator[None]:
    """Add the message of a UserError to the problems of a table."""
    try:
        yield
    except UserError as error:
        problems.append(str(error))


def place_of(table: pd.DataFrame, row: int, column: str) -> str:
    """Return file, row and column of a cell, for an error message; `row` counts the rows of all files from 0."""
    return f"{table[FILE].iloc[row]}: row {table[ROW].iloc[row]}, column {column}"


def refuse_first(table: pd.DataFrame, name: str, wrong: Array, sentence: str) -> None:
    """Raise UserError about the first cell of a column that is wrong, (n,) bool; `{}` or `{!r}` in the sentence is the cell."""
    for row in np.flatnonzero(wrong)[:1]:
        raise UserError(f"{place_of(table, row, name)}: {sentence.format(table[name].iloc[row])}")


def refuse_infinite(table: pd.DataFrame, name: str, numbers: Array) -> None:
    """Raise UserError with the first cell of a column that is infinite or beyond float32."""
    sentence = (
        f"{{}} is infinite or beyond float32; correct it, or add it to {WHERE}.na if it means a missing value"
    )
    refuse_first(table, name, np.abs(numbers) > np.finfo(np.float32).max, sentence)


def is_name(different: int, rows: int) -> bool:
    """Return True if a column with so many different texts has names or numbers, not categories."""
    return different > max(MANY, rows / 2)


def numbers_of(cells: "pd.Series[str]") -> Array:
    """Return float64 (n,), NaN for cells that are no numbers."""
    return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def needs_float64(numbers: Array) -> bool:
    """Return True if float32 loses digits of whole numbers, or as many of fractions that it matters beside their deviation."""
    lost = np.abs(numbers - numbers.astype(np.float32))
    return bool(
        (lost[numbers == np.round(numbers)] > 0).any() or lost.max() > LOST_DEVIATIONS * numbers.std()
    )


def learned_column(table: pd.DataFrame, name: str, train: Array, options: TableOptions) -> EncodedColumn:
    """Return how a column becomes inputs; medians and categories are those of the rows `train`, (n,) bool."""
    cells, where = table[name], f"{table[FILE].iloc[0]}: column {name}"
    if holds_arrays(cells):
        raise UserError(
            f"{where} has arrays of several lengths, texts or bytes in its rows, not one number or text; write columns of numbers, or list "
            f"it in {WHERE}.exclude"
        )
    missing = cells.isna().to_numpy()
    known, fills = train & ~missing, options.missing == "median"
    if not known.any():
        raise UserError(f"{where} has no value in the training rows; list it in {WHERE}.exclude")
    numbers = numbers_of(cells)
    if not matching([name], options.categorical):
        if not np.isnan(numbers[~missing]).any():
            refuse_infinite(table, name, numbers)
            return EncodedColumn(name, missing=float(np.median(numbers[known])) if fills else None)
        _refuse_ambiguous(table, name, np.isnan(numbers) & ~missing)
    texts = numbers if cells.dtype != object else cells.to_numpy(str)
    values, counts = np.unique(texts[known], return_counts=True)
    if is_name(len(values), int(train.sum())):
        raise UserError(
            f"{where} has {len(values):,} different texts in {train.sum():,} training rows, such as {str(values[0])!r}; write plain "
            f"numbers if they are numbers, or exclude it by {WHERE}.exclude"
        )
    most_frequent = values[counts.argmax()].item() if fills else None
    return EncodedColumn(name, tuple(values.tolist()), most_frequent, options.categories == "one_hot")


def encoded_column(table: pd.DataFrame, column: EncodedColumn, absent: str = "") -> tuple[Array, list[str]]:
    """Return the inputs (n, k) of one column, and notes on replaced values; `absent` lists the texts of missing values."""
    name, notes, is_number = composed(column.name), [], not column.values
    cells = table[name]
    missing = cells.isna().to_numpy()
    if missing.any():
        if column.missing is None:
            refuse_first(table, name, missing, "missing; the training had no replacement for it")
        value = (
            f"{column.missing:g}, the median" if is_number else f"{column.missing}, the most frequent value"
        )
        notes = [f"{name}: missing values ({missing.sum():,}) are {value} of the training rows{absent}"]
    is_text = not is_number and isinstance(column.values[0], str)
    known = (cells if is_text else pd.Series(numbers_of(cells))).mask(missing, column.missing)
    if is_number:
        refuse_first(
            table, name, known.isna().to_numpy(), "{!r} is no number; the training rows have numbers"
        )
        refuse_infinite(table, name, known.to_numpy())
        return known.to_numpy()[:, None], notes
    # Stores of earlier versions have texts as they were written.
    codes = {composed(value) if is_text else value: code for code, value in enumerate(column.values)}
    found = (known.map(composed) if is_text else known).map(codes)
    if unknown := int(found.isna().sum()):
        notes.append(f"{name}: rows with a value that no training row has: {unknown:,}")
    others = len(column.values)
    places = found.fillna(others).to_numpy(np.int64)
    if not column.one_hot:
        return places[:, None].astype(np.float64), notes
    return np.eye(others + 1)[places, :others], notes


def _refuse_ambiguous(table: pd.DataFrame, name: str, other: Array) -> None:
    """Raise UserError if the cells of a column are neither plain numbers nor clearly categories; `other` than numbers, (n,) bool."""
    known = table[name].notna().to_numpy()
    texts = table[name][known]
    bare = texts.str.replace(UNITS, "", regex=True).str.replace(EXPONENT, "e", regex=True)
    # With decimal commas, a single text in a column leaves all its numbers as texts.
    is_number = ~np.isnan(numbers_of(bare.str.replace(SIGNS, "", regex=True)))
    if 0.5 < is_number.mean() < 1:
        other = known.copy()
        other[known] = ~is_number
    if other.sum() < len(texts):
        sentence = (
            f"{{!r}} is no number, but other rows have numbers; add it to {WHERE}.na if it means a missing value, or the column to "
            f"{WHERE}.categorical or {WHERE}.exclude"
        )
    elif is_number.all():
        sentence = (
            f"{{!r}} is no plain number; set {WHERE}.decimal: ',' if the comma is a decimal mark, remove signs, units and separators of "
            f"thousands, or add the column to {WHERE}.categorical"
        )
    elif texts.map(partial(re.fullmatch, DATE)).notna().all():
        sentence = f"{{!r}} is a date or a time; write it as a number, such as the day of the year, or add the column to {WHERE}.exclude"
    else:
        return
    refuse_first(table, name, other, sentence)
