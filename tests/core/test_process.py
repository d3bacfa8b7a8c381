"""Processes of other users, which are never signaled and not taken for dead; pipes; the folder of the interpreter."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place

from nnlo_lib.core import process as process_module
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.process import ProcessIdentity, interpreter_folder, wait_until_read
from nnlo_lib.launch.watchdog import RankProcesses

__all__ = ["shared_place"]


@pytest.fixture
def process(shared_place):
    """Start a process of the other user, which ends when its input is closed."""
    # Not Python, which can be in root's home, where other users cannot read it.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=ATTACKER, group=ATTACKER) as process:
        yield process
        process.stdin.close()


def is_alive(process):
    return process.poll() is None


@pytest.mark.processes
@pytest.mark.parametrize("user", [VICTIM, 0])
def test_ranks_of_another_user_are_not_killed(shared_place, process, user, capfd):
    # A shared run folder: the earlier attempt was another user's, or a rank file has a false number.
    ranks = shared_place / "ranks"
    ranks.mkdir()
    (ranks / "0").write_text(json.dumps(asdict(ProcessIdentity.from_pid(process.pid))))
    run_as(user, lambda: RankProcesses(ranks).wait_then_kill(0))
    assert is_alive(process)
    assert f"{ranks}/0: process {process.pid} of another user" in capfd.readouterr().err


@pytest.mark.processes
def test_a_process_that_proc_hides_is_not_taken_for_dead(shared_place, process, monkeypatch):
    """With `hidepid`, /proc has no folder of the other user's process, and its lease would be taken over."""
    identity = ProcessIdentity.from_pid(process.pid)
    # A kernel can refuse to mount another /proc in a container.
    monkeypatch.setattr(process_module, "Path", lambda path: Path(str(path).replace("/proc/", "/nowhere/")))
    monkeypatch.setattr(process_module.os, "access", lambda *_: False)
    monkeypatch.setattr(process_module, "_pid_namespace", lambda: identity.room)
    assert not run_as(VICTIM, lambda: identity.is_dead)
    process.kill()
    process.wait()
    assert run_as(VICTIM, lambda: identity.is_dead)


def test_the_wait_ends_when_the_pipe_is_empty():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb", buffering=0) as reader:
        stream.write("a sentence")
        got = []
        thread = threading.Timer(0.1, lambda: got.append(reader.read(100)))
        thread.start()
        wait_until_read(stream, 3600)
        thread.join()
        assert got == [b"a sentence"]


def test_the_wait_has_a_limit_and_files_need_none(tmp_path):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        stream.write("unread")
        wait_until_read(stream, 0.05)
    os.close(reading)
    with (tmp_path / "file").open("w") as stream:
        wait_until_read(stream, 3600)


def test_a_folder_that_path_cannot_contain_is_refused(monkeypatch):
    assert interpreter_folder() == Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", "/a:b/.venv/bin/python")
    with pytest.raises(UserError, match=r"^/a:b/.venv/bin: .* cannot be in PATH, .* contains ':'; create"):
        interpreter_folder()
