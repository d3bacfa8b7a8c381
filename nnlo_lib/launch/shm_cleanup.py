"""Removal of the shared memory that killed MPI processes leave behind, by the launcher of these processes."""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

MIN_SEGMENT_AGE_S = 1.0  # seconds; a younger segment may belong to another launch that has not mapped it yet


class SharedMemoryCleanup:
    """MPICH's shared memory segments of this user that appear after the construction of this object."""

    def __init__(self) -> None:
        self._before = set(_segments())

    def remove_unused(self) -> None:
        """Remove the segments that no process has mapped."""
        left = [path for path in _segments() if path not in self._before and _is_removable(path)]
        used = _mapped() if left else ""
        for path in left:
            if str(path) not in used:
                with suppress(OSError):
                    path.unlink()


def _segments() -> list[Path]:
    return list(Path("/dev/shm").glob("mpich_shm_*"))


def _is_removable(path: Path) -> bool:
    with suppress(OSError):
        # `stat` follows a link of another user to its target, which can belong to this user.
        status = path.lstat()
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return is_own and time.time() - status.st_mtime > MIN_SEGMENT_AGE_S
    return False


def _mapped() -> str:
    texts = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            texts.append(path.read_text())
    return "".join(texts)
