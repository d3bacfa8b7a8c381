"""How far an attempt has come, for whoever finds it dead: state/step."""

import os
import struct
import weakref
from contextlib import suppress
from pathlib import Path

FORMAT = struct.Struct("<qq")


class Steps:
    """The step that an attempt began at and the last one that it did, in a file that its first worker overwrites."""

    def __init__(self, folder: Path, begun: int, leads: bool) -> None:
        self._begun = begun
        self._file: int | None = None
        if leads:
            self._file = os.open(folder / "step", os.O_RDWR | os.O_CREAT, 0o666)
            weakref.finalize(self, os.close, self._file)
        self.reached(begun)

    def reached(self, step: int) -> None:
        """Note a step; a disk that refuses is no reason to stop."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, FORMAT.pack(self._begun, step), 0)


def read_steps(folder: Path) -> tuple[int, int]:
    """Return the step that the last attempt began at and the last one that it did; zeros where none began."""
    try:
        begun, reached = FORMAT.unpack((folder / "step").read_bytes())
    except (OSError, struct.error):
        return 0, 0
    return begun, reached
