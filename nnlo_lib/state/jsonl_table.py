"""Tables that grow during a training: state/<name>.jsonl."""

import csv
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.json_text import load_json

TableRow = dict[str, Any]


def read_rows(path: Path) -> list[TableRow]:
    """Return the rows in the file of a table; none if there is no file. Raises ValueError if it is damaged."""
    return [load_json(line) for line in path.read_text().splitlines()] if path.exists() else []


class JsonlTable:
    """A table in memory that is also appended to a file.

    Rows that cannot be written (OSError) stay in memory and are written with the next flush that succeeds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[TableRow] = []
        self._written = 0

    def rewind(self, rows: int) -> None:
        """Discard all rows except the first `rows`, in the file too; used when a checkpoint is restored."""
        # Rows after the checkpoint are discarded because the steps that wrote them are trained again.
        lines = self._path.read_text().splitlines()[:rows] if self._path.exists() else []
        self.rows = [load_json(line) for line in lines]
        self._written = len(lines)
        with atomic_write(self._path) as part:
            part.write_text("".join(f"{line}\n" for line in lines))

    def append(self, row: TableRow) -> None:
        """Add a row, and try to write it to the file."""
        self.rows.append(row)
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Write the rows that are not on disk yet, all or nothing. Raises OSError if writing fails."""
        text = "".join(f"{json.dumps(row)}\n" for row in self.rows[self._written :])
        with self._path.open("ab") as file:
            size = file.tell()
            try:
                file.write(text.encode())
                file.flush()
            except OSError:
                # A full disk may accept part of the text, which would corrupt the row that is written next.
                os.truncate(self._path, size)
                raise
        self._written = len(self.rows)

    def publish(self, path: Path) -> None:
        """Write the table, which must have at least one row, as CSV to `path`."""
        with atomic_write(path) as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
