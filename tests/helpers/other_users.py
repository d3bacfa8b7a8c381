"""Work as users without root's rights, for tests of files that several users can write."""

import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.requires import absent

VICTIM, ATTACKER = 60_001, 60_002  # users without a name and without files
MEMBERS, GROUP = (60_011, 60_012), 60_020  # users of one group


def run_as(user: int, work: Callable[[], Any], group: int | None = None, umask: int = 0o022) -> Any:
    """Return the result of `work` in a child process of the user; its exception becomes an AssertionError.

    `group`: the only group of the user; by default, one of its own.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.umask(umask)
        _work_and_exit(user, group or user, work, writer)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as answer:
            content = answer.read()
    finally:
        # After a time-out of the test, the child still runs.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    error, result = pickle.loads(content) if content else ("the process ended without a result", None)
    assert error is None, error
    return result


def _work_and_exit(user: int, group: int, work: Callable[[], Any], writer: int) -> None:
    try:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        answer = (None, work())
    except BaseException as error:
        answer = (f"{type(error).__name__}: {error}", None)
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(pickle.dumps(answer))
    os._exit(0)


@pytest.fixture
def shared_place() -> Iterator[Path]:
    """Return a folder that every user can write, like /tmp; skip the test unless root runs it."""
    if os.getuid():
        absent("only root can work as several users")
    # Not tmp_path, whose parents only root can enter.
    top = Path(tempfile.mkdtemp(prefix="nnlo-users-"))
    top.chmod(0o755)
    (top / "tmp").mkdir()
    (top / "tmp").chmod(0o1777)
    yield top / "tmp"
    shutil.rmtree(top)
