"""Output through a pipe to a process that may stop reading, such as mpiexec at an abort."""

import fcntl
import struct
import termios
import time
from typing import TextIO

CHECK_INTERVAL_S = 0.005


def wait_until_read(stream: TextIO, timeout_s: float = 2.0) -> None:
    """Flush a stream and wait until its reader has read everything; return at once if the stream is no pipe.

    Args:
        stream: stream of this process, for example sys.stderr.
        timeout_s: limit in seconds.
    """
    deadline = time.monotonic() + timeout_s
    try:
        stream.flush()
        while _unread_bytes(stream.fileno()) and time.monotonic() < deadline:
            time.sleep(CHECK_INTERVAL_S)
    except (OSError, ValueError):
        return


def _unread_bytes(descriptor: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])
