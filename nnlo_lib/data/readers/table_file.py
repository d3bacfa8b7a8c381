"""Files of tables, CSV or Parquet, as one data frame: a column has only numbers, or only texts and None."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.gzip_content import open_decompressed

PARQUET_SUFFIXES = (".parquet", ".pq")
PARQUET_START = b"PAR1"
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".csv.gz", ".tsv.gz", ".txt.gz", ".data.gz")
DELIMITERS = ",;\t|"
SPLIT, FILE, ROW = (
    "\0split",
    "\0file",
    "\0row",
)  # columns of the origin of a row; no header can have these names
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TableFormat:
    """Form of text files and of missing values.

    Attributes:
        columns: names of all columns; empty: the first line has them.
        delimiter: separator of the cells; None: the one of DELIMITERS that the first line has most often.
        decimal: mark in numbers before the fraction.
        na: texts of missing values.
        texts: columns of text whose cells may look like numbers.
    """

    columns: tuple[str, ...]
    delimiter: str | None
    decimal: str
    na: tuple[str, ...]
    texts: tuple[str, ...] = ()

    def read(self, files: Mapping[str, Sequence[Path]]) -> pd.DataFrame:
        """Return the rows of the files of each split in order, with SPLIT, FILE and ROW; rows of a file count from 1.

        Raises UserError if a file is no table, or the tables differ in their columns.
        """
        tables: list[pd.DataFrame] = []
        for split, path in ((split, path) for split, paths in files.items() for path in paths):
            parquet = path.name.lower().endswith(PARQUET_SUFFIXES)
            # Spreadsheets write empty rows at the end.
            table = (_parquet(path) if parquet else self._text_table(path)).dropna(how="all")
            if not len(table):
                raise UserError(
                    f"{path}: no row below the names of the columns; add rows, or remove the file"
                )
            first = tables[0].drop(columns=[SPLIT, FILE, ROW]) if tables else table
            if different := sorted(set(table.columns) ^ set(first.columns)):
                raise UserError(
                    f"{path}: its columns and the columns of {tables[0][FILE].iloc[0]} differ in {', '.join(different)}; "
                    "give all files the same columns"
                )
            origin = pd.DataFrame({SPLIT: split, FILE: str(path), ROW: table.index + 1}, table.index)
            tables.append(pd.concat([table, origin], axis=1))
        return pd.concat(tables, ignore_index=True).apply(self._plain)

    def of_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a data frame as `read` returns the rows of a file."""
        table = frame.set_axis(list(map(str, frame.columns)), axis=1).reset_index(drop=True)
        _check_names(Path("predict"), list(table.columns))
        table = table.apply(self._plain)
        table[SPLIT], table[FILE], table[ROW] = "", "predict", table.index + 1
        return table

    def _plain(self, cells: "pd.Series[str]") -> "pd.Series[str]":
        """Return a column as numbers, or as texts without spaces at their ends and None for missing values."""
        if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
            return cells
        texts = cells.astype(object).where(cells.notna(), None)
        texts = texts.map(str, na_action="ignore").str.strip().astype(object)
        return texts.where(~texts.isin(self.na) & texts.notna(), None)

    def _text_table(self, path: Path) -> pd.DataFrame:
        if not path.name.lower().endswith(TEXT_SUFFIXES):
            known = " ".join(TEXT_SUFFIXES + PARQUET_SUFFIXES)
            raise UserError(f"{path}: not the name of a table; known: {known}")
        text = _text(path)
        delimiter = self.delimiter or max(DELIMITERS, key=text.partition("\n")[0].count)
        names = self._names(path, text, delimiter)
        try:
            return pd.read_csv(
                io.StringIO(text), sep=delimiter, decimal=self.decimal, header=None if self.columns else 0, names=names,
                keep_default_na=False, na_values=list(self.na), index_col=False, skipinitialspace=True, low_memory=False,
                dtype=dict.fromkeys(self.texts, str),
            )  # fmt: skip
        except ValueError as error:
            raise UserError(f"{path}: {error}; correct the file") from error

    def _names(self, path: Path, text: str, delimiter: str) -> list[str]:
        """Return the names of the columns. Raises UserError if a line has another number of cells, which pandas fills."""
        lines = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
        names = list(self.columns)
        try:
            for cells in filter(None, lines):
                names = names or [cell.strip() for cell in cells]
                if len(cells) != len(names):
                    raise UserError(
                        f"{path}: line {lines.line_num} has {len(cells)} cells, but there are {len(names)} columns; correct the "
                        "line, or set data.reader.delimiter or data.reader.columns"
                    )
        except csv.Error as error:
            raise UserError(
                f"{path}: line {lines.line_num}: {error}; correct the quotes of the line"
            ) from error
        _check_names(path, names)
        return names


def _text(path: Path) -> str:
    with open_decompressed(path) as stream:
        content = stream.read()
    if content.startswith(PARQUET_START):
        raise UserError(f"{path}: a Parquet file; rename it to {path.stem}.parquet")
    try:
        # Spreadsheets write a byte order mark, or UTF-16.
        return content.decode("utf-16" if content.startswith(UTF_16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: no text in UTF-8 ({error}); convert it, for example: iconv -f latin1 -t utf-8"
        ) from error


def _parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except ImportError as error:
        raise UserError(
            f"{path}: Parquet needs pyarrow; run `pip install pyarrow`, or write the table as CSV"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a Parquet file ({error}); write it again") from error
    table.columns = [str(name) for name in table.columns]
    _check_names(path, list(table.columns))
    for name in table.select_dtypes(object):
        if table[name].map(lambda cell: isinstance(cell, list | tuple | dict | bytes | np.ndarray)).any():
            raise UserError(
                f"{path}: column {name} has a list or bytes in a row, not one number or text; write it as columns of numbers"
            )
    return table.reset_index(drop=True)


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Raise UserError if the names are no header, or two columns have one name."""
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{path}: two columns are called '{name}'; rename one of them, or, if the first line has no names of columns, "
                "name them by data.reader.columns"
            )
    if names and pd.to_numeric(pd.Series(names), errors="coerce").notna().all():
        raise UserError(
            f"{path}: the first line has only numbers, no names of columns; name them by data.reader.columns"
        )
