"""Keys of `data.reader` for tables: the choice of columns by names and patterns, and the form of text files."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import open_decompressed
from nnlo_lib.data.readers.base import composed

WHERE = "data.reader"
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")
SPREADSHEET = (
    "a spreadsheet; save it as CSV in its program, or by pandas.read_excel(...).to_csv(..., index=False)"
)
PACKED = "a compressed file; unpack it, or compress it by gzip"
# First bytes of files that are no text: what they are, and the remedy.
OTHER_STARTS = {
    b"PAR1": "a Parquet file; rename it to {}.parquet", b"PK\3\4": f"{SPREADSHEET}; or a ZIP archive: unpack it",
    b"\xd0\xcf\x11\xe0": SPREADSHEET, b"BZh": PACKED, b"\xfd7zXZ": PACKED, b"\x28\xb5\x2f\xfd": PACKED, b"7z\xbc\xaf": PACKED,
    b"\x89HDF": "an HDF5 file; write a table of pandas as CSV: pandas.read_hdf(...).to_csv(..., index=False); read arrays by "
    "data.reader: {name: arrays}",
}  # fmt: skip
DELIMITERS = ",;\t|"
COMMENT_MARKS = ("#", "|", "%")
SAMPLED_LINES = 50  # by which the delimiter is found
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
FILES = ("train", "test", "validation")


@dataclass(frozen=True)
class TableOptions:
    """Keys of config.reader.TableReaderConfig; a single name is a list of one."""

    label: str = ""
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test_fraction: float = 0.2
    split_column: str | None = None
    target: Literal["classes", "numbers"] = "classes"
    weight: str | None = None
    features: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    categories: Literal["one_hot", "integer"] = "one_hot"
    missing: Literal["refuse", "drop", "median"] = "refuse"
    na: tuple[str, ...] = MISSING
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str = "."
    tree: str | None = None

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> "TableOptions":
        """Return the options of the keys that differ from their defaults."""
        values = {field.name: keys[field.name] for field in fields(cls) if field.name in keys}
        for name, value in values.items():
            form = str if name in FILES else composed
            if isinstance(getattr(cls, name), tuple):
                values[name] = tuple(map(form, [value] if isinstance(value, str) else value))
            elif name in ("label", "split_column", "weight") and value is not None:
                values[name] = form(value)
        return cls(**values)


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that equal or match a pattern."""
    return [name for name in names if any(name == each or fnmatchcase(name, each) for each in patterns)]


def text_below(text: str, lines: int) -> io.StringIO:
    """Return the text below some lines."""
    stream = io.StringIO(text)
    for _ in range(lines):
        stream.readline()
    return stream


def is_row(cells: list[str]) -> bool:
    """Return True unless the line of the cells is empty."""
    return cells not in ([], [""])


def sampled_rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the cells of the first lines."""
    lines = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    return [*islice(filter(is_row, lines), SAMPLED_LINES)]


def find_delimiter(text: str, options: TableOptions) -> str:
    """Return the delimiter by which most of the first lines have the same number of cells; blanks if there is no other one."""
    columns, found = len(options.columns), dict[str, tuple[bool, int, int]]()
    for delimiter in DELIMITERS.replace(options.decimal, ""):
        widths = Counter(len(cells) for cells in sampled_rows(text, delimiter) if len(cells) > 1)
        ranks = [(columns in (width, width - 1), count, width) for width, count in widths.items()]
        if ranks:
            found[delimiter] = max(ranks)
    blanks = " " if any(len(cells) > 1 for cells in sampled_rows(text, " ")) else ","
    return max(found, key=lambda each: found[each], default=blanks)


def fitting_names(names: list[str], cells: list[str]) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of cells of all rows, by the first row.

    The names, or the rows, may end with a delimiter, and the names begin with a mark of a comment.
    """
    if len(cells) == len(names) - 1 and (not names[-1] or names[0] in COMMENT_MARKS):
        return (names[:-1] if not names[-1] else names[1:]), len(cells)
    return names, len(names) + (len(cells) == len(names) + 1 and not cells[-1])


def other_kind(path: Path, start: bytes) -> str:
    """Return what a file is that begins like no text, with a remedy; or an empty text."""
    kinds = (kind for first, kind in OTHER_STARTS.items() if start.startswith(first))
    return next(kinds, "").replace("{}", path.stem)


def table_text(path: Path) -> str:
    """Return the lines of a text file, which may be compressed by gzip. Raises UserError for other files, by their first bytes."""
    with open_decompressed(path) as stream:
        content = stream.read()
    if kind := other_kind(path, content):
        raise UserError(f"{path}: {kind}")
    try:
        # Spreadsheets write a byte order mark, or UTF-16.
        text = content.decode("utf-16" if content.startswith(UTF_16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: no text in UTF-8 ({error}); convert it, for example: iconv -f latin1 -t utf-8"
        ) from error
    return re.sub(r"\n[\s\x1a]*$", "\n", text.replace("\r\n", "\n").replace("\r", "\n"))
