"""Files of several users: who owns what this user cannot read or write, and what to ask the owner for."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nnlo_lib.core.errors import UserError


def owner_name(status: os.stat_result) -> str:
    """Return the owner of a file as text, for messages."""
    try:
        return f"{pwd.getpwuid(status.st_uid).pw_name} (uid {status.st_uid})"
    except KeyError:
        return f"user {status.st_uid}"


def cause_of(error: OSError, path: Path) -> str:
    """Return the cause of an error at a path, as text; for a missing permission, it names the owner and the remedy."""
    obstacle = _obstacle(path) if isinstance(error, PermissionError) else None
    return _refusal(obstacle) if obstacle else error.strerror or str(error)


def refuse_unwritable(*folders: Path) -> None:
    """Raise UserError if this user cannot write all files and folders below the folders, which may be missing."""
    for folder in folders:
        for path in _below(folder) if os.path.isdir(folder) else [_nearest_folder(folder)]:
            with suppress(FileNotFoundError):  # another process may train there
                mode = path.lstat().st_mode
                needed = os.R_OK | os.W_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)
                # A file that its owner cannot write, such as a copy of a user's code, is written by nobody.
                if (
                    not os.access(path, needed)
                    and (stat.S_ISDIR(mode) or mode & stat.S_IWUSR)
                    and path.exists()
                ):
                    raise UserError(_refusal(path, folder))


def _below(folder: Path) -> Iterator[Path]:
    yield folder
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if not (path := Path(parent, name)).is_symlink():
                yield path


def _nearest_folder(path: Path) -> Path:
    """Return the folder in which the first missing folder of a path would be created."""
    return next(each for each in path.parents if os.path.isdir(each))


def _obstacle(path: Path) -> Path | None:
    """Return the file or folder that keeps this user from reading or writing at a path; None if there is none."""
    for folder in reversed(path.parents):
        if os.path.isdir(folder) and not os.access(folder, os.X_OK):
            return folder
    exists, parent = os.path.lexists(path), _nearest_folder(path)
    if exists and not os.access(path, os.R_OK):
        return path
    if not os.access(parent, os.W_OK):
        return parent
    # Some calls, such as a change of the times of a file, need its owner.
    return path if exists and (not os.access(path, os.W_OK) or path.lstat().st_uid != os.geteuid()) else None


def _refusal(path: Path, folder: Path | None = None) -> str:
    """Return a sentence on a path that this user cannot read or write; `folder`: the folder that should be writable."""
    status, top = path.lstat(), folder if folder and os.path.exists(folder) else path
    shown, top = (each if each != Path() else Path.cwd() for each in (path, top))
    if status.st_uid == os.geteuid():
        return f"{shown} does not let its owner read and write (mode {stat.S_IMODE(status.st_mode):o}); run: chmod -R u+rwX {top}"
    group = os.getegid()
    # Without the bit setgid, new files have a group of their owner, which need not be one of this user.
    regroup = "" if status.st_gid in (group, *os.getgroups()) else f"chgrp -R {_group_name(group)} {top}; "
    is_readable = os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(status.st_mode) else 0))
    change = f"{regroup}chmod -R {'g+w' if is_readable else 'g+rwX'} {top}"
    return (
        f"{shown} belongs to {owner_name(status)}, and you cannot write there; ask for `{change}`, or work "
        "in a folder of your own"
    )


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
