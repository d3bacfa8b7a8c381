"""Tables that grow during a training: state/<name>.jsonl."""

import csv
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json

TableRow = dict[str, Any]


def read_rows(path: Path) -> list[TableRow]:
    """Return the rows in the file of a table; none if there is no file. Raises ValueError if it is damaged."""
    return [load_json(line) for line in path.read_text().splitlines()] if path.exists() else []


class JsonlTable:
    """A table in memory that is also appended to a file.

    Rows that cannot be written (OSError) stay in memory and are written with the next flush that succeeds.

    Attributes:
        path: the file.
        rows: the rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[TableRow] = []
        self._written = 0

    def restore(self, rows: list[TableRow]) -> int:
        """Replace all rows, in the file too, by the rows of a checkpoint.

        Return the number of rows that were missing in the file or differed.
        """
        # Rows after the checkpoint are discarded because the steps that wrote them are trained again.
        lines = [json.dumps(row) for row in rows]
        unchanged = sum(map(str.__eq__, lines, self._lines()))
        self.rows, self._written = list(rows), len(rows)
        with atomic_write(self.path) as part:
            part.write_text("".join(f"{line}\n" for line in lines))
        return len(lines) - unchanged

    def _lines(self) -> list[str]:
        return self.path.read_text(errors="replace").splitlines() if self.path.exists() else []

    def append(self, row: TableRow) -> None:
        """Add a row, and try to write it to the file."""
        self.rows.append(row)
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Write the rows that are not on disk yet, all or nothing. Raises OSError if writing fails."""
        text = "".join(f"{json.dumps(row)}\n" for row in self.rows[self._written :])
        with self.path.open("ab") as file:
            size = file.tell()
            try:
                file.write(text.encode())
                file.flush()
            except OSError:
                # A full disk may accept part of the text, which would corrupt the row that is written next.
                os.truncate(self.path, size)
                raise
        self._written = len(self.rows)

    def sync(self) -> None:
        """Write the table, and flush it to the disk. Raises UserError if the disk is full."""
        try:
            self.flush()
            with self.path.open("rb") as table:
                os.fsync(table.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error

    def publish(self, path: Path) -> None:
        """Write the table, which must have at least one row, as CSV to `path`; missing values are empty."""
        with atomic_write(path) as part, part.open("w", newline="") as file:
            # A restart may add a column, for example with observe.loss_average.
            columns = dict.fromkeys(name for row in self.rows for name in row)
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(self.rows)
