"""Lock of a folder into which one process of a node copies a data set."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import try_lock
from nnlo_lib.core.regular_file import open_for_append

STAGING_TIMEOUT_S = 3600.0  # maximum wait for another process of the node that copies the data set
POLL_SECONDS = 0.2


@contextmanager
def staging_lock(target: Path, patience: float) -> Iterator[None]:
    """Hold the lock of the folder; the operating system releases it if the process ends.

    Raises UserError if the folder cannot be written, or another process still holds the lock after `patience` seconds.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Not truncated before the lock is held: until then, the file names the process that holds it.
        lock = open_for_append(target / ".lock")
    except OSError as error:
        raise UserError(f"data.stage_to: cannot write to {target}: {error.strerror}") from error
    with lock:
        _acquire(lock, target, patience)
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        yield


def _acquire(lock: IO[bytes], target: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not try_lock(lock, target / ".lock"):
        if time.monotonic() > deadline:
            lock.seek(0)
            raise UserError(
                f"data.stage_to: process {lock.read().decode() or 'unknown'} has been copying to {target} for more than "
                f"{patience:g} s; end the process, or remove data.stage_to"
            )
        time.sleep(POLL_SECONDS)
