"""Shared memory that killed MPI processes leave behind: nobody but their launcher would ever remove it."""

import os
import time
from contextlib import suppress
from pathlib import Path

MIN_SEGMENT_AGE_S = 1.0  # seconds in which another launch may have made a segment and not mapped it yet


class SharedMemoryCleanup:
    """MPICH's segments of this user that appear from now on."""

    def __init__(self) -> None:
        self._before = set(_segments())

    def remove_unused(self) -> None:
        """Remove those of them that no process uses."""
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
        status = path.stat()
        return status.st_uid == os.getuid() and time.time() - status.st_mtime > MIN_SEGMENT_AGE_S
    return False


def _mapped() -> str:
    texts = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            texts.append(path.read_text())
    return "".join(texts)
