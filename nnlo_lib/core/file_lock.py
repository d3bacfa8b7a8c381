"""Locks on files that only one process at a time may use."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nnlo_lib.core.errors import UserError


@contextmanager
def exclusive_lock(path: Path, doing: str) -> Iterator[None]:
    """Hold the lock of the file `path`, which is created if missing and removed afterwards if it is empty.

    Raises UserError if another process holds the lock or has just removed or renamed the file; the message
    describes the work of that process by `doing`, such as "downloading train.gz".
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Append mode creates a missing file but keeps the content, which can be a partial download.
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process is {doing}; wait until it has finished, then run the command again"
            ) from error
        # Between open and flock, the previous holder can have renamed or removed the file. A lock on that
        # file would not exclude the next process, which opens the file that is now at `path`.
        if not _is_still(path, lock):
            raise UserError(f"another process has just stopped {doing}; run the command again")
        try:
            yield
        finally:
            # Before the lock is released, because the next holder could write to the file as soon as it has
            # the lock.
            if _is_still(path, lock) and not path.stat().st_size:
                path.unlink()


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the file `path`, which is created if missing and kept; wait while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_still(path: Path, file: IO[bytes]) -> bool:
    """Return True if the open file is still at `path`: it has not been renamed or removed."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
