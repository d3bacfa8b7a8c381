"""The run's own log and history in `state/`: appended to by every attempt, published once at the end."""

import csv
import json
import sys
import time
from pathlib import Path
from typing import Any

from nnlo_lib.data.atomic import replacing

Row = dict[str, Any]


class Journal:
    """Lines for people: to stderr and, with the time, to state/log.txt; silent on other ranks than 0."""

    def __init__(self, folder: Path, speaks: bool) -> None:
        self._path = folder / "log.txt"
        self._speaks = speaks
        if speaks:
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, text: str) -> None:
        """Say `text` and keep it."""
        if self._speaks:
            print(text, file=sys.stderr, flush=True)
            with self._path.open("a") as file:
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                file.writelines(f"{now} {line}\n" for line in text.splitlines())

    def publish(self, path: Path) -> None:
        """Copy the whole log to its declared place."""
        with replacing(path) as part:
            part.write_text(self._path.read_text())


class History:
    """Rows of a table, appended to state/<name>.jsonl as soon as they are known."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.jsonl"
        self.rows: list[Row] = []

    def rewind(self, rows: int) -> None:
        """Go back to the first `rows` rows, the ones a checkpoint knows."""
        lines = self._path.read_text().splitlines()[:rows] if self._path.exists() else []
        self.rows = [json.loads(line) for line in lines]
        with replacing(self._path) as part:
            part.write_text("".join(f"{line}\n" for line in lines))

    def append(self, row: Row) -> None:
        """Add a row."""
        self.rows.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def publish(self, path: Path) -> None:
        """Write the table as CSV to its declared place."""
        with replacing(path) as part, part.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
