"""The run's own log in `state/`: appended to by every attempt, published once at the end."""

import sys
import time
from contextlib import suppress
from pathlib import Path

from nnlo_lib.data.atomic import replacing


class Journal:
    """Lines for people: to stderr and, with the time, to state/log.txt; silent on other ranks than 0."""

    def __init__(self, folder: Path, speaks: bool) -> None:
        self._path = folder / "log.txt"
        self._speaks = speaks
        if speaks:
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, text: str) -> None:
        """Say `text` and keep it; where the disk refuses it is only said."""
        if self._speaks:
            print(text, file=sys.stderr, flush=True)
            with suppress(OSError), self._path.open("a") as file:
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                file.writelines(f"{now} {line}\n" for line in text.splitlines())

    def publish(self, path: Path) -> None:
        """Copy the whole log to its declared place."""
        with replacing(path) as part:
            part.write_text(self._path.read_text())
