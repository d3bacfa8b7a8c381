"""How far an attempt has come, for whoever finds it dead: state/step."""

import os
import struct
import weakref
from contextlib import suppress
from pathlib import Path

from nnlo_lib.config.paths import StatePaths

STEP_MARKER_FORMAT = struct.Struct("<qq")


class StepMarker:
    """The step that an attempt began at and the last one that it did, in a file that its first worker overwrites."""

    def __init__(self, folder: Path, begun: int, leads: bool) -> None:
        self._start_step = begun
        self._file: int | None = None
        if leads:
            self._file = os.open(StatePaths(folder).step, os.O_RDWR | os.O_CREAT, 0o666)
            weakref.finalize(self, os.close, self._file)
        self.write(begun)

    def write(self, step: int) -> None:
        """Note a step; a disk that refuses is no reason to stop."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, STEP_MARKER_FORMAT.pack(self._start_step, step), 0)


def read_step_marker(folder: Path) -> tuple[int, int]:
    """Return the step that the last attempt began at and the last one that it did; zeros where none began."""
    try:
        begun, reached = STEP_MARKER_FORMAT.unpack(StatePaths(folder).step.read_bytes())
    except (OSError, struct.error):
        return 0, 0
    return begun, reached
