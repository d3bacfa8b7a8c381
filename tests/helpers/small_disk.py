"""A small disk that a test fills, empties or makes read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.requires import absent

DISK_MB = 3
PAGE_BYTES = 4096  # tmpfs allocates whole pages


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a separate disk of DISK_MB megabytes."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        absent("only root may mount the small disk that this test fills")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on which a separate disk of DISK_MB megabytes is mounted."""
    with small_disk(tmp_path / "disk"):
        yield tmp_path / "disk"


def fill(disk: Path, mode: str = "wb") -> None:
    """Write to the file `ballast` on the disk until the disk is full."""
    with (disk / "ballast").open(mode, buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(PAGE_BYTES))
        except OSError:
            pass


def leave_pages(disk: Path, pages: int) -> None:
    """Fill the disk up to a number of free pages."""
    fill(disk)
    size = (disk / "ballast").stat().st_size
    os.truncate(disk / "ballast", size - pages * PAGE_BYTES)
