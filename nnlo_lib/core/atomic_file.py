"""Atomic writes: a reader never sees a partly written file, also after a power failure."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nnlo_lib.core.errors import UserError


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success flush it to disk and rename it, otherwise remove it.

    Raises UserError with `path` if the file system refuses to write (full disk, missing permission).
    """
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _reserve(path)
        yield part
        _publish(part, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _reserve(path: Path) -> Path:
    """Create an empty file with an unused name and the default permissions of a new file."""
    # In the folder of the target, because a rename is atomic only within one file system.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    # mkstemp creates files with mode 0600, and the umask can only be read by setting it.
    mask = os.umask(0)
    os.umask(mask)
    # By the open file, because another user of a shared folder could have replaced the name.
    os.fchmod(handle, 0o666 & ~mask)
    os.close(handle)
    return Path(name)


def _publish(part: Path, path: Path) -> None:
    # Content reaches the disk before the name: after a crash, `path` is the old or the complete new file.
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power failure, where the file system can flush folders."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network and user-space file systems refuse to flush a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(handle)


def create_folder(folder: Path) -> None:
    """Create a folder and its parents, so that they survive a power failure. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in (folder, *folder.absolute().parents):
        # A parent that is not readable, such as /home on some machines, was not created here.
        with suppress(PermissionError):
            fsync_folder(each)
