"""Commands of real users other than root, who start Python themselves.

Python and the repository may be in a folder that only root can enter, such as /root. Therefore each command has its own
table of mounts, in which this folder is empty except for what the command needs. Nothing of the machine is changed.

As a script: user_login.py USER HOME COMMAND...
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from helpers.repository_copy import environment

REPOSITORY = Path(__file__).parents[2]
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18


def start_as(user: int, home: Path, command: Sequence[str], **variables: str) -> "subprocess.Popen[str]":
    """Start a command of a user who is in the table of users for this command.

    Args:
        user: number of the user.
        home: home of the user, in which the command runs.
        command: program and arguments.
        **variables: further environment variables.
    """
    return subprocess.Popen(
        [sys.executable, __file__, str(user), str(home), *command],
        env=environment() | {"PYTHONPATH": str(REPOSITORY / "tests"), "HOME": str(home)} | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def main() -> None:
    """Become the user and run the command."""
    user, home, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    _call("unshare", CLONE_NEWNS)
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    _add_to_users(user, home)
    _open(_needed(), str(home.parent))
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    os.chdir(home)
    del os.environ["PYTHONPATH"]
    os.execv(command[0], command)


def _needed() -> list[Path]:
    """Return the folders that a Python process of NNLO reads."""
    found = {Path(each) for each in (sys.prefix, sys.base_prefix, REPOSITORY)}
    return sorted({*found, *(path.resolve() for path in found)})


def _open(needed: Sequence[Path], place: str) -> None:
    """Hide the content of folders that only root can enter, except for the folders that are needed.

    `place` is a folder in which only root makes folders.
    """
    for top in {blocked for path in needed if (blocked := _blocked(path)) is not None}:
        inside = [path for path in needed if path.is_relative_to(top)]
        kept = []
        for path in inside:
            kept.append(tempfile.mkdtemp(prefix=".login-", dir=place))
            _mount(str(path), kept[-1], "", MS_BIND | MS_REC)
        _mount("tmpfs", str(top), "tmpfs", 0, "mode=755")
        for path, copy in zip(inside, kept, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            _mount(copy, str(path), "", MS_BIND | MS_REC)


def _blocked(path: Path) -> Path | None:
    """Return the outermost folder of a path that other users cannot enter."""
    folders = [*reversed(path.parents), path]
    return next((folder for folder in folders if not folder.stat().st_mode & 0o001), None)


def _add_to_users(user: int, home: Path) -> None:
    with tempfile.NamedTemporaryFile("w", dir=home.parent, delete=False) as table:
        table.write(Path("/etc/passwd").read_text())
        table.write(f"user{user}:x:{user}:{user}::{home}:/bin/sh\n")
    Path(table.name).chmod(0o644)
    _mount(table.name, "/etc/passwd", "", MS_BIND)
    Path(table.name).unlink()


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)


def _call(function: str, *arguments: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, function)(*arguments):
        raise OSError(ctypes.get_errno(), f"{function} {arguments}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
