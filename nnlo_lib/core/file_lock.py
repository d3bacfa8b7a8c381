"""Locks on files that only one process at a time may use."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.regular_file import open_for_append

POLL_SECONDS = 0.2
# Errors of flock on file systems without locks: Lustre without the option flock, some NFS, FUSE and object stores.
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}

logger = get_logger(__name__)


def try_lock(file: IO[bytes], path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Acquire the lock of an open file; return False if another process holds it.

    Args:
        file: open file.
        path: its path, for the message.
        kind: LOCK_EX or LOCK_SH.

    Raises UserError if the file system has no locks.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise UserError(
            f"{path.parent}: the file system of this folder has no file locks ({error.strerror}), without which two processes "
            "could write there at once; work in a folder on another file system, or ask for the mount option flock"
        ) from error
    return True


@contextmanager
def exclusive_lock(path: Path, doing: str, patience: float = 0.0, shared: bool = False) -> Iterator[None]:
    """Hold the lock of the file `path`, which is created if missing and removed afterwards if it is empty.

    Args:
        path: file to lock.
        doing: work of the process that holds the lock, for messages, such as "downloading train.gz".
        patience: longest wait for another process, in seconds; the start of a wait is logged.
        shared: hold the lock together with other processes that share it; the file then stays.

    Raises:
        UserError: if the file cannot be written, is a link, or could have been prepared by any other user; if another process still holds the lock after `patience`, or, without patience, if another
            process has just removed or renamed the file.
    """
    deadline, waits = time.monotonic() + patience, False
    while True:
        # Keeps the content, which can be a partial download.
        with _opened(path) as lock:
            obstacle = _obstacle(path, lock, doing, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            if obstacle is None:
                yield from _held(path, lock, keeps=shared)
                return
        if time.monotonic() >= deadline:
            raise UserError(obstacle)
        if not waits:
            logger.info(f"another process is {doing}; waiting until it has finished")
        waits = True
        time.sleep(POLL_SECONDS)


def _opened(path: Path) -> IO[bytes]:
    """Open the file of a lock; create the file and its folder if missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_for_append(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _obstacle(path: Path, lock: IO[bytes], doing: str, kind: int) -> str | None:
    """Acquire the lock of an open file and return None, or return why it is not acquired.

    Args:
        path: path of the file.
        lock: open file.
        doing: work of the process that holds the lock.
        kind: LOCK_EX or LOCK_SH.
    """
    if not try_lock(lock, path, kind):
        return f"another process is {doing}; wait until it has finished, then run the command again"
    # Between open and flock, the previous holder can have renamed or removed the file. A lock on that
    # file would not exclude the next process, which opens the file that is now at `path`.
    return (
        None if _is_still(path, lock) else f"another process has just stopped {doing}; run the command again"
    )


def _held(path: Path, lock: IO[bytes], keeps: bool) -> Iterator[None]:
    try:
        yield
    finally:
        # Before the lock is released, because the next holder could write to the file as soon as it has
        # the lock.
        if not keeps and _is_still(path, lock) and not path.stat().st_size:
            path.unlink()


def _is_still(path: Path, file: IO[bytes]) -> bool:
    """Return True if the open file is still at `path`: it has not been renamed or removed."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
