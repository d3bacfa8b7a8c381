"""Errors as one line that ends with the cause, and commands that a stop signal ends with a sentence."""

import os
import signal
import subprocess
import sys
import traceback

import pytest

from nnlo_lib.core.errors import CUT, error_headline, without_middle
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.state.attempt_outcome import AttemptOutcome

COMMAND = """
import os, signal, sys
from nnlo_lib.core.errors import exit_on_user_error
from nnlo_lib.core.errors import StopSignals

def send():
    os.kill(os.getpid(), signal.{name})

def command():
    StopSignals().install()
    {body}
    return 0

sys.exit(exit_on_user_error(command)())
"""
CLEANED = "try: send()\n    finally: print('cleaned up')"
SWALLOWED = "try: send()\n    except BaseException: pass\n    send()"
IMPORT = "import os, signal\ntry: os.kill(os.getpid(), signal.SIGTERM)\nexcept BaseException: pass\n"
STOPPED = "nnlo: stopped by {}; run the same command again\n"


def deep(levels, error):
    if levels:
        deep(levels - 1, error)
    raise error


def trace(error, cause=None):
    try:
        try:
            deep(5, cause or error)
        except type(cause or error):
            if cause is None:
                raise
            raise error from cause
    except Exception as caught:
        return "rank 2 failed: " + "".join(traceback.format_exception(caught))


def noted(error, *notes):
    for note in notes:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("a sentence", "a sentence"),
        ("cannot download\n  the host is down", "cannot download; the host is down"),
        (trace(ValueError("4 is odd")), "rank 2 failed: ValueError: 4 is odd"),
        (trace(ValueError("4 is odd:\n  four\n\n  is odd")), "rank 2 failed: ValueError: 4 is odd: four; is odd"),
        (trace(KeyError("a"), ValueError("b")), "rank 2 failed: KeyError: 'a'"),
        (trace(noted(KeyError("a"), "samples are 1 x 8")), "rank 2 failed: KeyError: 'a'; samples are 1 x 8"),
    ],
)  # fmt: skip
def test_frames_are_left_out(text, line):
    assert error_headline(text) == line
    assert AttemptOutcome("code error", text).error_summary == (line or None)


def test_the_end_of_a_long_error_is_kept():
    line = error_headline("net.py:3 in forward: " + "and more " * 500 + "\nthe third layer is too wide", 100)
    assert line.startswith("net.py:3 in forward: and")
    assert CUT in line
    assert line.endswith("the third layer is too wide")
    assert len(line) <= 100
    assert without_middle("x" * 100, 100) == "x" * 100


def test_an_error_of_a_users_file_keeps_its_end():
    text = error_with_source_line(ValueError("config " * 1000 + "the units must be positive"))
    assert text.startswith("ValueError: config")
    assert text.endswith("the units must be positive")


def run(folder, body, name="SIGTERM", **options):
    """Return status, output and errors of a command with this body."""
    (folder / "command.py").write_text(COMMAND.format(body=body, name=name))
    done = subprocess.run(
        [sys.executable, "command.py"], cwd=folder, capture_output=True, text=True, timeout=250, check=False, **options
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGURG", "SIGXCPU"])
def test_a_signal_ends_a_command_after_its_clean_up(tmp_path, name):
    cause = ": the limit of processor time (ulimit -t) is reached" * (name == "SIGXCPU")
    assert run(tmp_path, CLEANED, name) == (75, "cleaned up\n", STOPPED.format(name + cause))


@pytest.mark.processes
def test_a_signal_during_an_import_ends_the_command_at_once(tmp_path):
    """Compiled code that imports can swallow an exception, or raise another one."""
    (tmp_path / "slow.py").write_text(IMPORT)
    assert run(tmp_path, "import slow") == (75, "", STOPPED.format("SIGTERM"))


@pytest.mark.processes
def test_the_second_signal_ends_a_command_that_has_swallowed_the_first(tmp_path):
    assert run(tmp_path, SWALLOWED) == (75, "", STOPPED.format("SIGTERM"))


@pytest.mark.processes
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_the_parent_ignores_stays_ignored(tmp_path, name):
    def ignore():
        signal.signal(signal.Signals[name], signal.SIG_IGN)

    assert run(tmp_path, "send()", name, preexec_fn=ignore) == (0, "", "")


@pytest.mark.processes
def test_a_terminal_that_is_gone_ends_a_command_without_a_message(tmp_path):
    """All writes to it fail (EIO); a command that was detached from it gets no SIGHUP."""
    master, terminal = os.openpty()
    os.close(master)
    (tmp_path / "command.py").write_text(COMMAND.format(body="print('a table')", name="SIGHUP"))
    done = subprocess.run(
        [sys.executable, "command.py"], cwd=tmp_path, stdout=terminal, stderr=subprocess.PIPE, text=True, timeout=250
    )  # fmt: skip
    os.close(terminal)
    assert (done.returncode, done.stderr) == (141, "")
