"""Files of tables as one data frame: text, Parquet, Arrow and ROOT.

A column has only numbers, only texts and None, or arrays. Texts have composed letters (Unicode NFC), and no spaces at their ends.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import is_normalized

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import composed, warn_once
from nnlo_lib.data.readers.table_options import (
    COMMENT_MARKS,
    WHERE,
    TableOptions,
    find_delimiter,
    fitting_names,
    is_row,
    matching,
    other_kind,
    sampled_rows,
    table_text,
    text_below,
)

PARQUET_SUFFIXES = (".parquet", ".pq")
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".csv.gz", ".tsv.gz", ".txt.gz", ".data.gz")
# Format, and the package that reads it.
BINARY_FORMATS = {
    **dict.fromkeys(PARQUET_SUFFIXES, ("Parquet", "pyarrow")), **dict.fromkeys((".arrow", ".feather"), ("Arrow", "pyarrow")),
    ".root": ("ROOT", "uproot"),
}  # fmt: skip
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *BINARY_FORMATS)
ARROW_START = b"ARROW1"
UNNAMED = "a column without a name is not used"
SPLIT, FILE, ROW = "\0split", "\0file", "\0row"  # origin of a row; no header can have these names
CODE = re.compile(r"[+-]?0\d.*|[+-]?\d{16,}")  # of digits that a number would not keep
LISTED = 5  # texts in a sentence


class TableFiles:
    """Reads tables.

    Attributes:
        notes: sentences about lines and columns that are not read.
        missing: how often each text or number of `na` occurs in a column; "" is an empty cell.
        changes: ways in which the samples differ from those of earlier versions, which stores of the same files may have.
    """

    def __init__(self, options: TableOptions, numbers: Sequence[str] | None = None) -> None:
        """Prepare to read. `numbers`: columns that may be; None: all, but codes such as 007 of columns in `categorical` stay texts."""
        self.options, self._may_be_numbers = options, numbers
        known = pd.to_numeric(pd.Series(options.na, dtype=object), errors="coerce")
        self._numbers = known.dropna().to_numpy(np.float64)
        self.notes, self.changes = list[str](), set[str]()
        self.missing: dict[str, Counter[str]] = {}

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
        table = pd.concat(tables, ignore_index=True)
        is_text = all(str(path).lower().endswith(TEXT_SUFFIXES) for paths in files.values() for path in paths)
        if len(self._numbers) and not is_text:
            self.changes.add("na")  # which was a list of texts, so that these files kept its numbers
        for name in table.columns.drop([SPLIT, FILE, ROW]):
            table[name] = cells = self._plain(table[name])
            if is_text and self._may_be_numbers is None and matching([name], self.options.categorical):
                numbers = pd.to_numeric(cells, errors="coerce")
                if cells.map(CODE.fullmatch, na_action="ignore").notna().any():
                    self.changes.add("codes")
                elif numbers.notna().equals(cells.notna()):
                    table[name] = numbers
        return table

    def of_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a data frame as `read` returns the rows of a file."""
        table = _with_flat_arrays(Path("predict"), frame).apply(self._plain)
        table[SPLIT], table[FILE], table[ROW] = "", "predict", table.index + 1
        return table

    def texts_of_missing(self, name: str, before: str = ": ") -> str:
        """Return the texts of a column that count as missing, as the end of a sentence; empty if they are empty cells."""
        found = self.missing.get(name, Counter[str]()).most_common(LISTED)
        texts = ", ".join(f"{text!r} in {count:,} rows" for text, count in found if text)
        return f"{before}{WHERE}.na has {texts}" if texts else ""

    def _plain(self, cells: "pd.Series[Any]") -> "pd.Series[Any]":
        """Return a column as numbers, or as texts and None; `na` is missing in both."""
        if holds_arrays(cells):
            return cells
        if is_numeric_dtype(cells) and not is_bool_dtype(cells):
            # In the type of the column: -999.9 of float32 is another float64.
            known = self._numbers.astype(np.float32) if cells.dtype == np.float32 else self._numbers
            return self._without(cells, cells.isin(known))
        if not all(is_normalized("NFC", str(text)) for text in cells.dropna().unique()):
            self.changes.add("NFC")
        texts = cells.astype(object).where(cells.notna(), None).map(composed, na_action="ignore")
        texts = self._without(texts, texts.isin(self.options.na)).astype(object)
        return texts.where(texts.notna(), None)

    def _without(self, cells: "pd.Series[Any]", missing: "pd.Series[bool]") -> "pd.Series[Any]":
        """Return the cells without those that count as missing, which are counted."""
        found = self.missing.setdefault(str(cells.name), Counter())
        for text, count in cells[missing].value_counts().items():
            found[f"{text:g}" if isinstance(text, float) else str(text)] += count
        return cells.mask(missing) if missing.any() else cells

    def _table(self, path: Path) -> pd.DataFrame:
        if path.name.lower().endswith(TEXT_SUFFIXES):
            return self._text_table(path)
        if path.suffix.lower() not in BINARY_FORMATS:
            with path.open("rb") as file:
                kind = other_kind(path, file.read(8))
            known = f"not the name of a table; known: {' '.join(TABLE_SUFFIXES)}; if it is text, rename it to {path.name}.csv"
            raise UserError(f"{path}: {kind or known}")
        kind, package = BINARY_FORMATS[path.suffix.lower()]
        try:
            table = _root_table(path, self.options.tree) if kind == "ROOT" else _arrow_table(path, kind)
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
        text = table_text(path)
        options, may = self.options, self._may_be_numbers
        # Excel writes the delimiter so.
        told = re.match(r'"?sep=(.)"?[^\S\n]*\n', text, re.IGNORECASE)
        delimiter = options.delimiter or (told[1] if told else find_delimiter(text, options))
        names, lines = self._names(path, text, delimiter, 1 if told else 0)
        texts = (
            matching(names, options.categorical)
            if may is None
            else [each for each in names if each not in may]
        )
        try:
            table = pd.read_csv(
                text_below(text, lines), sep=r"\s+" if delimiter == " " else delimiter, decimal=options.decimal, header=None,
                names=names, keep_default_na=False, na_values=[""] if "" in options.na else [], index_col=False,
                skipinitialspace=True, low_memory=False, dtype=dict.fromkeys(texts, str),
            )  # fmt: skip
        except ValueError as error:
            raise UserError(f"{path}: {error}; correct the file") from error
        rows = [dict(zip(names, row, strict=False)) for row in sampled_rows(text, delimiter)]
        used = {*matching(names, options.features)} - {*matching(names, options.exclude), options.label}
        for name in names:
            if name.startswith("\0"):
                # Pandas writes the number of the row so, which would tell the place of a row in sorted files.
                if table[name].notna().any() and UNNAMED not in self.notes:
                    self.notes.append(UNNAMED)
                table = table.drop(columns=name)
                continue
            if name not in texts and not is_numeric_dtype(table[name]):
                table[name] = self._as_numbers(self._plain(table[name]))
            codes = [row[name] for row in rows if re.fullmatch(r"0\d{2,}", row.get(name, ""))]
            if codes and may is None and name in used and is_numeric_dtype(table[name]):
                warn_once(
                    f"{path}: column {name}: {codes[0]} is read as the number {int(codes[0])}; list the column in data.reader.categorical if "
                    "these are codes"
                )
        return table

    def _as_numbers(self, texts: "pd.Series[Any]") -> "pd.Series[Any]":
        """Return a column of texts as numbers if each text is one, as `pandas.read_csv` reads them."""
        known = texts.dropna()
        if self.options.decimal == "," and known.str.contains(".", regex=False).any():
            return texts
        try:
            numbers = pd.to_numeric(known.str.replace(self.options.decimal, ".", regex=False))
        except (TypeError, ValueError):
            return texts
        return numbers.reindex(texts.index)

    def _names(self, path: Path, text: str, delimiter: str, above: int) -> tuple[list[str], int]:
        """Return the names of the columns, and the number of lines above the first row; the lines `above` are no table.

        Names that are empty begin with a zero byte. Raises UserError if a line has another number of cells, which pandas fills.
        """
        lines = csv.reader(text_below(text, above), delimiter=delimiter, skipinitialspace=True, strict=True)
        names, first, width = [*self.options.columns], above, 0
        widths = Counter(map(len, sampled_rows(text, delimiter)))
        usual = len(names) or (widths.most_common(1)[0][0] if widths else 0)
        try:
            for cells in filter(is_row, lines):
                if delimiter == " " and not cells[-1]:
                    cells.pop()
                line, is_marked = above + lines.line_num, cells[0][:1] in COMMENT_MARKS
                # The mark may stand alone before the names.
                names_below_mark = cells[0] in COMMENT_MARKS and len(cells) == usual + 1
                if is_marked and not width and len(cells) != usual and not names_below_mark:
                    comment = delimiter.join(cells).strip()[:60]
                    warn_once(f"{path}: line {line} is a comment and not read: {comment}")
                    self.notes.append(f"line {line} of {path.name} is a comment: {comment}")
                    first = line
                elif not names:
                    names, first = [composed(cell) for cell in cells], line
                else:
                    names, width = (names, width) if width else fitting_names(names, cells)
                    if len(cells) != width or (width > len(names) and cells[-1]):
                        raise UserError(
                            f"{path}: line {line} has {len(cells)} cells, but there are {len(names)} columns; correct the "
                            "line, remove lines above the names of the columns, or set data.reader.delimiter or data.reader.columns"
                        )
        except csv.Error as error:
            raise UserError(
                f"{path}: line {above + lines.line_num}: {error}; correct the quotes of the line"
            ) from error
        _check_names(path, [name for name in names if name])
        # Pandas numbers the columns of an array so.
        is_numbered = self.options.label in names and names == [*map(str, range(len(names)))]
        numbers = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce")
        if not (self.options.columns or is_numbered) and np.isfinite(numbers).all():
            raise UserError(
                f"{path}: the first line has only numbers, no names of columns; name them by data.reader.columns"
            )
        names += [""] * (width - len(names))
        return [name or f"\0{place}" for place, name in enumerate(names)], first


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
        names = sorted({*file.keys(cycle=False, filter_classname=["TTree", "TNtuple*", "ROOT::RNTuple"])})
        tree = tree or (names[0] if len(names) == 1 else None)
        if tree not in names:
            missing = f"no tree {tree}" if tree else f"{len(names)} trees"
            raise UserError(f"{path}: {missing}; set data.reader.tree to one of: {', '.join(names)}")
        columns = file[tree].arrays(library="np")
    return pd.DataFrame({name: list(cells) if cells.ndim > 1 else cells for name, cells in columns.items()})


def saved_dataset_files(folder: Path) -> list[Path]:
    """Return the files of a folder that `datasets.Dataset.save_to_disk` wrote; empty for another folder."""
    state = folder / "state.json"
    files = json.loads(state.read_text())["_data_files"] if state.exists() else []
    return [folder / each["filename"] for each in files]


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
        cells = table[name].rename(composed(name)).reset_index(drop=True)
        part = cells.to_frame()
        if holds_arrays(cells):
            try:
                numbers = np.array(cells.to_list(), np.float64).reshape(len(cells), -1)
            except (TypeError, ValueError):
                pass  # of several lengths, or of texts: refused if it is used
            else:
                part = pd.DataFrame(numbers).add_prefix(f"{cells.name}_")
        parts.append(part)
    table = pd.concat(parts, axis=1)
    _check_names(path, list(table.columns))
    return table


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Raise UserError if two columns have one name."""
    for name in [name for name, count in Counter(names).items() if count > 1][:1]:
        raise UserError(
            f"{path}: two columns are called '{name}'; rename one of them, or, if the first line has no names of columns, "
            "name them by data.reader.columns"
        )
