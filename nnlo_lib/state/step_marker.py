"""Progress of an attempt in state/step, which survives a crash of the attempt."""

import os
import struct
import weakref
from contextlib import suppress
from pathlib import Path

from nnlo_lib.config.paths import StatePaths

STEP_MARKER_FORMAT = struct.Struct("<qq")


class StepMarker:
    """First and last step of an attempt, in a file that its first worker overwrites.

    Args:
        folder: `state/` folder of the run.
        begun: step from which the attempt starts.
        leads: whether this rank is the first worker; other ranks write nothing.
    """

    def __init__(self, folder: Path, begun: int, leads: bool) -> None:
        self._start_step = begun
        self._file: int | None = None
        if leads:
            self._file = os.open(StatePaths(folder).step, os.O_RDWR | os.O_CREAT, 0o666)
            weakref.finalize(self, os.close, self._file)
        self.write(begun)

    # Called after each step: one write in place, without fsync, survives the death of the process.
    def write(self, step: int) -> None:
        """Write `step` as the last completed step; write errors are ignored so that training continues."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, STEP_MARKER_FORMAT.pack(self._start_step, step), 0)


def read_step_marker(folder: Path) -> tuple[int, int]:
    """Return the first step of the last attempt and its last completed step; zeros if there is no file."""
    try:
        begun, reached = STEP_MARKER_FORMAT.unpack(StatePaths(folder).step.read_bytes())
    except (OSError, struct.error):
        return 0, 0
    return begun, reached
