"""The failure of a rank as a line of its output, for a launcher that finds no file: the disk may be full."""

import fcntl
import json
import os
import stat
import struct
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from nnlo_lib.core.json_text import load_json
from nnlo_lib.core.logging_setup import write_stderr

FAILURE_PREFIX = "nnlo failure: "
STDERR = 2
READ_TIMEOUT_S = 5.0  # upper limit of the wait until a launcher has read the line
READ_POLL_S = 0.002  # seconds between two looks at the pipe


def print_failure(failure: Mapping[str, Any]) -> None:
    """Write a failure to stderr as a line of its own, and wait until the other end of the pipe has read the line.

    MPI_Abort, which ends the ranks after a failure, makes Hydra (MPICH) drop output that it has not read.
    """
    write_stderr(f"\n{FAILURE_PREFIX}{json.dumps(failure)}\n")
    deadline = time.monotonic() + READ_TIMEOUT_S
    while _unread_bytes() and time.monotonic() < deadline:
        time.sleep(READ_POLL_S)


def _unread_bytes() -> int:
    """Return the number of bytes in the pipe at stderr; 0 if stderr is no pipe."""
    with suppress(OSError):
        if stat.S_ISFIFO(os.fstat(STDERR).st_mode):
            (size,) = struct.unpack("i", fcntl.ioctl(STDERR, termios.FIONREAD, bytes(4)))
            return int(size)
    return 0


def parse_failure(line: str) -> dict[str, Any] | None:
    """Return the failure in a line that `print_failure` wrote; None for other lines."""
    if not line.startswith(FAILURE_PREFIX):
        return None
    try:
        failure = load_json(line.removeprefix(FAILURE_PREFIX))
    except ValueError:
        return None
    return failure if isinstance(failure, dict) and "rank" in failure else None
