"""Files of tables as one data frame: CSV, Parquet, Arrow and ROOT. A column has only numbers, only texts and None, or arrays."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.gzip_content import open_decompressed

PARQUET_SUFFIXES = (".parquet", ".pq")
ROOT_SUFFIXES = (".root",)
ARROW_SUFFIXES = (".arrow", ".feather")
PARQUET_START, ARROW_START = b"PAR1", b"ARROW1"
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".csv.gz", ".tsv.gz", ".txt.gz", ".data.gz")
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *PARQUET_SUFFIXES, *ARROW_SUFFIXES, *ROOT_SUFFIXES)
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
        tree: name of the TTree or RNTuple of ROOT files; None: the only one.
    """

    columns: tuple[str, ...]
    delimiter: str | None
    decimal: str
    na: tuple[str, ...]
    texts: tuple[str, ...] = ()
    tree: str | None = None

    def read(self, files: Mapping[str, Sequence[Path]]) -> pd.DataFrame:
        """Return the rows of the files of each split in order, with SPLIT, FILE and ROW; rows of a file count from 1.

        Raises UserError if a file is no table, or the tables differ in their columns.
        """
        tables: list[pd.DataFrame] = []
        for split, path in ((split, path) for split, paths in files.items() for path in paths):
            # Spreadsheets write empty rows at the end.
            table = self._table(path).dropna(how="all")
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
        table = _with_flat_arrays(Path("predict"), frame).apply(self._plain)
        table[SPLIT], table[FILE], table[ROW] = "", "predict", table.index + 1
        return table

    def _plain(self, cells: "pd.Series[str]") -> "pd.Series[str]":
        """Return a column as numbers, or as texts without spaces at their ends and None for missing values."""
        if holds_arrays(cells) or (
            pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)
        ):
            return cells
        texts = cells.astype(object).where(cells.notna(), None)
        texts = texts.map(str, na_action="ignore").str.strip().astype(object)
        return texts.where(~texts.isin(self.na) & texts.notna(), None)

    def _table(self, path: Path) -> pd.DataFrame:
        name = path.name.lower()
        if not name.endswith(TABLE_SUFFIXES):
            raise UserError(f"{path}: not the name of a table; known: {' '.join(TABLE_SUFFIXES)}")
        if name.endswith(TEXT_SUFFIXES):
            return self._text_table(path)
        kind, package = "Arrow", "pyarrow"
        if name.endswith(PARQUET_SUFFIXES):
            kind = "Parquet"
        elif name.endswith(ROOT_SUFFIXES):
            kind, package = "ROOT", "uproot"
        try:
            table = _root_table(path, self.tree) if kind == "ROOT" else _arrow_table(path, kind)
        except ImportError as error:
            raise UserError(
                f"{path}: {kind} needs {package}; run `pip install {package}`, or write the table as CSV"
            ) from error
        except UserError:
            raise
        except Exception as error:  # uproot raises exceptions of many types for damaged files
            raise UserError(f"{path}: not a file of {kind} ({error}); write it again") from error
        return _with_flat_arrays(path, table)

    def _text_table(self, path: Path) -> pd.DataFrame:
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


def _arrow_table(path: Path, kind: str) -> pd.DataFrame:
    """Return a file of Parquet or Arrow; classes that the package `datasets` wrote as numbers have their names."""
    import pyarrow as pa

    if kind == "Parquet":
        from pyarrow import parquet

        table = parquet.read_table(path)
    else:
        with pa.memory_map(str(path)) as content:
            # `datasets` writes a stream of record batches, Feather a file of them.
            is_stream = content.read(len(ARROW_START)) != ARROW_START
            content.seek(0)
            table = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(content).read_all()
    frame: pd.DataFrame = table.to_pandas()
    notes = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    for name, feature in notes.get("info", {}).get("features", {}).items():
        if feature.get("_type") == "ClassLabel":
            frame[name] = frame[name].map(dict(enumerate(feature["names"])))
    return frame


def _root_table(path: Path, tree: str | None) -> pd.DataFrame:
    """Return a TTree or RNTuple of a ROOT file."""
    import uproot

    with uproot.open(path) as file:
        trees = file.keys(cycle=False, filter_classname=["TTree", "TNtuple*", "ROOT::RNTuple"])
        names = sorted(set(trees))
        tree = tree or (names[0] if len(names) == 1 else None)
        if tree not in names:
            missing = f"no tree {tree}" if tree else f"{len(names)} trees"
            raise UserError(f"{path}: {missing}; set data.reader.tree to one of: {', '.join(names)}")
        columns = file[tree].arrays(library="np")
    return pd.DataFrame({name: list(cells) if cells.ndim > 1 else cells for name, cells in columns.items()})


def saved_dataset_files(folder: Path) -> list[Path]:
    """Return the files of a folder that `datasets.Dataset.save_to_disk` wrote; empty for another folder."""
    state = folder / "state.json"
    return (
        [folder / each["filename"] for each in json.loads(state.read_text())["_data_files"]]
        if state.exists()
        else []
    )


def saved_dataset_splits(folder: Path) -> list[str]:
    """Return the names of the splits, which are folders, that `datasets.DatasetDict.save_to_disk` wrote; empty for another folder."""
    splits = folder / "dataset_dict.json"
    return json.loads(splits.read_text())["splits"] if splits.exists() else []


def holds_arrays(cells: "pd.Series[Any]") -> bool:
    """Return True if a cell is an array, a list, bytes or a dictionary, not one number or text."""
    return cells.dtype == object and any(
        isinstance(cell, bytes) or not pd.api.types.is_scalar(cell) for cell in cells
    )


def _with_flat_arrays(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table in which numbers of arrays of one length are columns: x_0, x_1 and x_2 for x of length 3."""
    parts = list[pd.DataFrame]()
    for name in table:
        cells = table[name].rename(str(name)).reset_index(drop=True)
        part = cells.to_frame()
        if holds_arrays(cells):
            try:
                numbers = np.array(cells.to_list(), np.float64).reshape(len(cells), -1)
            except (TypeError, ValueError):
                pass  # of several lengths, or of texts: refused if it is used
            else:
                part = pd.DataFrame(numbers).add_prefix(f"{name}_")
        parts.append(part)
    table = pd.concat(parts, axis=1)
    _check_names(path, list(table.columns))
    return table


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
