"""Columns of a table as inputs: numbers, or categories as 0 and 1 or as integers.

Cells decide: a column is numbers if each cell is one, and categories if none is. What is neither is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array, EncodedColumn
from nnlo_lib.data.readers.table_file import FILE, ROW

WHERE = "data.reader"
MANY = 20  # more categories than this, and more than half the number of rows, are names or numbers
SIGNS = r"[$€£%,\s]"  # signs beside the digits of amounts, and separators of thousands
DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?"


@dataclass(frozen=True)
class Columns:
    """Choice of the columns and use of their cells; see `read`."""

    label: str
    target: Literal["classes", "numbers"]
    features: tuple[str, ...]
    exclude: tuple[str, ...]
    categorical: tuple[str, ...]
    categories: Literal["one_hot", "integer"]
    missing: Literal["refuse", "drop", "median"]
    test_fraction: float
    split_column: str | None


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that equal or match a pattern."""
    return [name for name in names if any(name == each or fnmatchcase(name, each) for each in patterns)]


def place_of(table: pd.DataFrame, row: int, column: str) -> str:
    """Return file, row and column of a cell, for an error message; `row` counts the rows of all files from 0."""
    return f"{table[FILE].iloc[row]}: row {table[ROW].iloc[row]}, column {column}"


def is_name(different: int, rows: int) -> bool:
    """Return True if a column with so many different texts has names or numbers, not categories."""
    return different > max(MANY, rows / 2)


def is_identifier(cells: "pd.Series[str]") -> bool:
    """Return True if the rows of a column are different integers that grow, or that would repeat if they were drawn from their range.

    Of n numbers drawn from a range of n^2 / 20, two are equal but for one case in exp(10) (the birthday problem).
    """
    numbers = numbers_of(cells)
    different = np.unique(numbers)
    if len(numbers) <= MANY or len(different) < len(numbers) or (numbers != np.round(numbers)).any():
        return False
    return bool((np.diff(numbers) > 0).all() or np.ptp(numbers) < len(numbers) ** 2 / 20)


def numbers_of(cells: "pd.Series[str]") -> Array:
    """Return float64 (n,), NaN for cells that are no numbers."""
    return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def refuse_infinite(table: pd.DataFrame, name: str, numbers: Array) -> None:
    """Raise UserError with the first cell of a column that is infinite or beyond float32."""
    for row in np.flatnonzero(np.abs(numbers) > np.finfo(np.float32).max)[:1]:
        raise UserError(
            f"{place_of(table, row, name)}: {table[name][row]} is infinite or beyond float32; correct it"
        )


def learned_column(table: pd.DataFrame, name: str, train: Array, choice: Columns) -> EncodedColumn:
    """Return how a column becomes inputs; medians and categories are those of the rows `train`, (n,) bool."""
    cells = table[name]
    missing = cells.isna().to_numpy()
    known, fills = train & ~missing, choice.missing == "median"
    if not known.any():
        raise UserError(f"{table[FILE][0]}: column {name} has no value in the training rows; exclude it")
    numbers = numbers_of(cells)
    if not matching([name], choice.categorical):
        _refuse_ambiguous(table, name, numbers, missing)
        if not np.isnan(numbers[~missing]).any():
            return EncodedColumn(name, missing=float(np.median(numbers[known])) if fills else None)
    texts = numbers if cells.dtype != object else cells.to_numpy(str)
    values, counts = np.unique(texts[known], return_counts=True)
    if is_name(len(values), int(train.sum())):
        raise UserError(
            f"{table[FILE][0]}: column {name} has {len(values):,} different texts in {train.sum():,} training rows; exclude it by "
            f"{WHERE}.exclude"
        )
    most_frequent = values[counts.argmax()].item() if fills else None
    return EncodedColumn(name, tuple(values.tolist()), most_frequent, choice.categories == "one_hot")


def encoded_column(table: pd.DataFrame, column: EncodedColumn) -> tuple[Array, list[str]]:
    """Return the inputs (n, k) of one column, and notes on replaced values."""
    name, cells = column.name, table[column.name]
    missing, notes = cells.isna().to_numpy(), []
    for row in np.flatnonzero(missing)[:1]:
        if column.missing is None:
            raise UserError(f"{place_of(table, row, name)}: missing; the training had no replacement for it")
        value = column.missing if column.values else f"{column.missing:g}"
        kind = "most frequent value" if column.values else "median"
        notes = [f"{name}: missing values ({missing.sum():,}) are {value}, the {kind} of the training rows"]
    if not column.values or isinstance(column.values[0], float):
        cells = pd.Series(numbers_of(cells))
    if not column.values:
        for row in np.flatnonzero(cells.isna() & ~missing)[:1]:
            raise UserError(
                f"{place_of(table, row, name)}: {table[name].iloc[row]!r} is no number; the training rows have numbers"
            )
        refuse_infinite(table, name, cells.to_numpy())
        return cells.mask(missing, column.missing).to_numpy()[:, None], notes
    texts = cells.mask(missing, column.missing).to_numpy(type(column.values[0]))
    values = np.array(column.values)
    found = np.minimum(np.searchsorted(values, texts), len(values) - 1)
    unknown = values[found] != texts
    if unknown.any():
        notes.append(f"{name}: rows with a value that no training row has: {unknown.sum():,}")
    if not column.one_hot:
        return np.where(unknown, len(values), found)[:, None], notes
    return np.eye(len(values))[found] * ~unknown[:, None], notes


def _refuse_ambiguous(table: pd.DataFrame, name: str, numbers: Array, missing: Array) -> None:
    """Raise UserError if the cells of a column are neither plain numbers nor clearly categories."""
    cells = table[name]
    other = np.flatnonzero(np.isnan(numbers) & ~missing)
    if not len(other):
        return
    shown = f"{place_of(table, int(other[0]), name)}: {cells[other[0]]!r}"
    if len(other) < (~missing).sum():
        raise UserError(
            f"{shown} is no number, but other rows have numbers; add it to {WHERE}.na if it means a missing value, or the column to "
            f"{WHERE}.categorical or {WHERE}.exclude"
        )
    texts = cells[~missing]
    if pd.to_numeric(texts.str.replace(SIGNS, "", regex=True), errors="coerce").notna().all():
        raise UserError(
            f"{shown} is no plain number; set {WHERE}.decimal: ',' if the comma is a decimal mark, remove signs and separators of "
            f"thousands, or add the column to {WHERE}.categorical"
        )
    if texts.map(partial(re.fullmatch, DATE)).notna().all():
        raise UserError(
            f"{shown} is a date; write it as a number, or add the column to {WHERE}.exclude or {WHERE}.categorical"
        )
