"""Commands of real users other than root, who start Python themselves.

Python and the repository may be in a folder that only root can enter, such as /root. Therefore each command has its own
table of mounts, in which this folder is empty except for what the command needs. Nothing of the machine is changed.

As a script: python -m helpers.user_login PLAN, where PLAN is JSON with the fields of `_Plan`.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.repository_copy import environment

REPOSITORY = Path(__file__).parents[2]
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18


@dataclass(frozen=True)
class _Plan:
    """A command of a user.

    Attributes:
        user: number of the user and of the user's group.
        home: home and working folder of the user.
        command: program and arguments.
    """

    user: int
    home: str
    command: list[str]


def start_as(user: int, home: Path, command: Sequence[str], **variables: str) -> "subprocess.Popen[str]":
    """Start a command of a user who is in the table of users for this command.

    Args:
        user: number of the user.
        home: home of the user, in which the command runs.
        command: program and arguments.
        **variables: further environment variables.
    """
    plan = json.dumps(asdict(_Plan(user, str(home), list(command))))
    return subprocess.Popen(
        [sys.executable, __file__, plan],
        env=environment() | {"PYTHONPATH": str(REPOSITORY / "tests"), "HOME": str(home)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def main() -> None:
    """Become the user and run the command."""
    plan = _Plan(**json.loads(sys.argv[1]))
    _call("unshare", CLONE_NEWNS)
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    _add_to_users(plan)
    _open(_needed(), str(Path(plan.home).parent))
    os.setgroups([])
    os.setgid(plan.user)
    os.setuid(plan.user)
    os.chdir(plan.home)
    del os.environ["PYTHONPATH"]
    os.execv(plan.command[0], plan.command)


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


def _add_to_users(plan: _Plan) -> None:
    with tempfile.NamedTemporaryFile("w", dir=Path(plan.home).parent, delete=False) as table:
        table.write(Path("/etc/passwd").read_text())
        table.write(f"user{plan.user}:x:{plan.user}:{plan.user}::{plan.home}:/bin/sh\n")
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
