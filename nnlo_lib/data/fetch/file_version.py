"""Identity of the content of a file, without reading the file."""

from pathlib import Path

FileVersion = tuple[int, ...]


def file_version(path: Path) -> FileVersion:
    """Return numbers that change when the file is replaced or written."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
