"""Readers of published files that check them for completeness."""

from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


def read_text(path: Path) -> str:
    """Read a UTF-8 text file. Raises UserError, naming the file, if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def read_json_object(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read a JSON object. Raises UserError if the file is missing, cut short or lacks one of `keys`."""
    try:
        content = load_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error}") from error
    except ValueError as error:
        raise UserError(f"{path} is cut short or damaged: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is cut short or damaged: it contains no JSON object")
    require(path, keys, content)
    return content


def read_arrays(path: Path) -> "dict[str, NDArray[Any]]":
    """Read the arrays of an NPZ file. Raises UserError if the file cannot be read or is damaged."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise UserError(f"{path} is cut short or damaged: {error}") from error


def read_table(path: Path, columns: Sequence[str]) -> "pd.DataFrame":
    """Read a CSV file. Raises UserError if the file is missing, cut short or lacks one of `columns`."""
    import pandas as pd  # imported here, because `nnlo verify` and `nnlo plan` start faster without it

    text = read_text(path)
    if not text.endswith("\n"):
        # A copy that was interrupted in the last number would otherwise be read as a complete table.
        raise UserError(f"{path} is cut short: its last line has no newline")
    try:
        # pandas would turn the run names 1 and NA into a number and a missing value.
        frame = pd.read_csv(
            StringIO(text), na_values=_missing_values(text), keep_default_na=False, dtype={"run": str}
        )
    except ValueError as error:
        raise UserError(f"{path} is not a table: {error}") from error
    require(path, columns, frame.columns)
    return frame


def require(path: Path, wanted: Sequence[str], present: Iterable[str]) -> None:
    """Raise UserError if a file lacks a required name.

    Args:
        path: the file, for the message.
        wanted: required keys or columns.
        present: keys or columns in the file.
    """
    found = set(present)
    if missing := [name for name in wanted if name not in found]:
        raise UserError(f"{path} is cut short or damaged: {path.name} lacks {', '.join(missing)}")


def _missing_values(text: str) -> dict[str, list[str]]:
    """Return the spellings of a missing value by column, except for `run`: a run may be called NA."""
    header = text.partition("\n")[0].split(",")
    return {name: ["", "nan", "NaN"] for name in header if name != "run"}
