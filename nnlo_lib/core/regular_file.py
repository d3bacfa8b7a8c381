"""Opening of files in folders in which other users may have prepared links, pipes or files."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

from nnlo_lib.core.private_folder import UntrustedPathError, is_public, owner_name

# Without O_NONBLOCK, opening a pipe could wait for ever for its other end.
APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EACCES):
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
    if is_public(path.parent) and (status.st_uid != os.geteuid() or status.st_nlink > 1):
        raise UntrustedPathError(
            f"{path} belongs to {owner_name(status)} or has a second name, and all users can write to {path.parent}; "
            "remove it, or use another folder"
        )
