"""Locks on files that only one process at a time may use; files and folders in places that other users can write.

Other users may have prepared links, pipes, files or folders there, such as in /tmp and $TMPDIR.
"""

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import IO

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import cause_of, owner_name
from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)
POLL_SECONDS = 0.2
# Errors of flock on file systems without locks: Lustre without the option flock, some NFS, FUSE and object stores.
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
# Without O_NONBLOCK, opening a pipe could wait for ever for its other end.
APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # read by torch when it compiles
COMPILER = "torch._dynamo"


@contextmanager
def exclusive_lock(
    path: Path, doing: str, patience: float = 0.0, shared: bool = False, is_silent: bool = False
) -> Iterator[None]:
    """Hold the lock of the file `path`, which is created if missing and removed afterwards if it is empty.

    Args:
        doing: work of the process that holds the lock, for messages, such as "downloading train.gz".
        patience: longest wait for another process, in seconds; the start of a wait is logged unless `is_silent`.
        shared: hold the lock together with other processes that share it; the file then stays.

    Raises:
        UserError: if the file cannot be written, is a link, or could have been prepared by any other user; if another
            process still holds the lock after `patience`, or, without patience, if another process has just removed or
            renamed the file.
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
        if not waits and not is_silent:  # of many ranks, all but one wait
            logger.info(f"another process is {doing}; waiting until it has finished")
        waits = True
        time.sleep(POLL_SECONDS)


def _opened(path: Path) -> IO[bytes]:
    """Open the file of a lock; create the file and its folder if missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_for_append(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {cause_of(error, path)}") from error


def _obstacle(path: Path, lock: IO[bytes], doing: str, kind: int) -> str | None:
    """Acquire the lock of an open file and return None, or return why it is not acquired."""
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


def try_lock(file: IO[bytes], path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Acquire the lock of an open file, LOCK_EX or LOCK_SH; return False if another process holds it.

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


class UntrustedPathError(UserError):
    """A path that another user has prepared, or can replace; the message names the path and its owner."""


def open_for_append(path: Path) -> IO[bytes]:
    """Open a regular file for reading and appending; create it if missing and never empty it.

    In a folder that all users can write, the file must belong to this user and have no second name.

    Raises:
        UntrustedPathError: if the file is a symbolic link, a pipe, a socket or another user's file.
        OSError: if the file cannot be opened.
    """
    try:
        handle = os.open(path, APPEND_FLAGS, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EACCES) and os.path.lexists(path):
            _refuse_untrusted(path, path.lstat())
        raise
    try:
        _refuse_untrusted(path, os.fstat(handle))
        return os.fdopen(handle, "a+b")
    except BaseException:
        os.close(handle)
        raise


def _refuse_untrusted(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedPathError(
            f"{path} is not a regular file ({stat.filemode(status.st_mode)}, made by {owner_name(status)}); remove it"
        )
    # Folders of a group are shared on purpose: members of the group wait for the locks of other members.
    if _is_public(path.parent) and (status.st_uid != os.geteuid() or status.st_nlink > 1):
        raise UntrustedPathError(
            f"{path} belongs to {owner_name(status)} or has a second name, and all users can write to {path.parent}; "
            "remove it, or use another folder"
        )


def private_folder(place: Path) -> Path:
    """Return the folder `nnlo-<uid>` in the existing folder `place`; create it if missing.

    Only this user, and root, can open it or give its name to another folder.

    Raises:
        UntrustedPathError: if another user made `place` or the folder, or could write to the folder or rename it.
        OSError: if the folder cannot be created.
    """
    place = Path(os.path.abspath(place))
    for folder in dict.fromkeys((place, place.resolve())):
        _refuse_replaceable(folder)
    path = place.resolve() / f"nnlo-{os.geteuid()}"
    with suppress(FileExistsError):
        path.mkdir(mode=stat.S_IRWXU)
    _refuse_foreign(path)
    return path


def _refuse_replaceable(place: Path) -> None:
    """Raise UntrustedPathError if any user of the machine can replace a folder in `place`, or `place` itself."""
    folders = [*reversed(place.parents), place]
    for folder in folders:
        if _is_public(folder) and not folder.stat().st_mode & stat.S_ISVTX:
            raise UntrustedPathError(
                f"{folder}: every user can rename folders in it (mode {_mode(folder.stat())}, no sticky bit); use another "
                f"folder, or run: chmod +t {folder}"
            )
    for parent, folder in pairwise(folders):
        # Any user could have made the folder, or the symbolic link, and could replace it.
        if _is_public(parent) and (status := folder.lstat()).st_uid not in (0, os.geteuid()):
            raise UntrustedPathError(
                f"{folder} belongs to {owner_name(status)}, and all users can write to {parent}; use another folder"
            )


def _refuse_foreign(path: Path) -> None:
    # The status of the name itself: its owner alone could give it to another folder, as `place` is trusted.
    status = path.lstat()
    if status.st_uid != os.geteuid():
        raise UntrustedPathError(
            f"{path} belongs to {owner_name(status)}, so its content is not trusted; ask for its removal, or use another folder"
        )
    if not stat.S_ISDIR(status.st_mode):
        raise UntrustedPathError(f"{path} is not a folder; remove it: rm {path}")
    if status.st_mode & OTHERS_CAN_WRITE:
        raise UntrustedPathError(
            f"{path}: other users can write to it (mode {_mode(status)}), so its content is not trusted; remove it: rm -r {path}"
        )
    if stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        path.chmod(stat.S_IRWXU)


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):o}"


def _is_public(folder: Path) -> bool:
    """Return True if every user can create files in the folder."""
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def guard_torch_compiler() -> None:
    """Let a later import of torch's compiler create no folder `torchinductor_<user>` in $TMPDIR.

    torch imports the compiler for some tensors without data and some optimizers, also if nothing is compiled. The import
    creates this folder, which another user may have prepared, and stores its name in the environment as if the user had
    set it. The import takes over a second, so this function leaves it to the first call that needs the compiler.
    """
    if COMPILER not in sys.modules and not any(isinstance(each, _CompilerFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, _CompilerFinder())


class _CompilerFinder(MetaPathFinder):
    """Finds torch's compiler, and lets `_CompilerLoader` import it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != COMPILER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _CompilerLoader(name, spec.origin)
        return spec


class _CompilerLoader(SourceFileLoader):
    """Imports torch's compiler with a folder that exists on every machine, so that the import creates no folder."""

    def exec_module(self, module: ModuleType) -> None:
        if CACHE_VARIABLE in os.environ:
            return super().exec_module(module)
        os.environ[CACHE_VARIABLE] = "/"
        try:
            return super().exec_module(module)
        finally:
            del os.environ[CACHE_VARIABLE]
