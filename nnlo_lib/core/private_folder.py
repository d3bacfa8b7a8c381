"""Folders of this user in places that other users can write, such as /tmp and $TMPDIR."""

import os
import pwd
import stat
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from nnlo_lib.core.errors import UserError

OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedPathError(UserError):
    """A path that another user has prepared, or can replace; the message names the path and its owner."""


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


def is_public(folder: Path) -> bool:
    """Return True if every user can create files in the folder."""
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def owner_name(status: os.stat_result) -> str:
    """Return the owner of a file as text, for messages."""
    try:
        return f"{pwd.getpwuid(status.st_uid).pw_name} (uid {status.st_uid})"
    except KeyError:
        return f"the user with uid {status.st_uid}"


def _refuse_replaceable(place: Path) -> None:
    """Raise UntrustedPathError if any user of the machine can replace a folder in `place`, or `place` itself."""
    folders = [*reversed(place.parents), place]
    for folder in folders:
        if is_public(folder) and not folder.stat().st_mode & stat.S_ISVTX:
            raise UntrustedPathError(
                f"{folder}: every user can rename folders in it (mode {_mode(folder.stat())}, no sticky bit); use another "
                f"folder, or run: chmod +t {folder}"
            )
    for parent, folder in pairwise(folders):
        # Any user could have made the folder, or the symbolic link, and could replace it.
        if is_public(parent) and (status := folder.lstat()).st_uid not in (0, os.geteuid()):
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
