"""Stop signals end a command with a sentence, also during imports and if code swallows the exception."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes
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


def run(folder, body, name="SIGTERM", **options):
    """Return status, output and errors of a command with this body."""
    (folder / "command.py").write_text(COMMAND.format(body=body, name=name))
    done = subprocess.run(
        [sys.executable, "command.py"], cwd=folder, capture_output=True, text=True, timeout=250, check=False, **options
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_ends_a_command_after_its_clean_up(tmp_path, name):
    assert run(tmp_path, CLEANED, name) == (75, "cleaned up\n", STOPPED.format(name))


def test_a_signal_during_an_import_ends_the_command_at_once(tmp_path):
    """Compiled code that imports can swallow an exception, or raise another one."""
    (tmp_path / "slow.py").write_text(IMPORT)
    assert run(tmp_path, "import slow") == (75, "", STOPPED.format("SIGTERM"))


def test_the_second_signal_ends_a_command_that_has_swallowed_the_first(tmp_path):
    assert run(tmp_path, SWALLOWED) == (75, "", STOPPED.format("SIGTERM"))


def test_a_signal_that_the_parent_ignores_stays_ignored(tmp_path):
    def ignore():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    assert run(tmp_path, "send()", preexec_fn=ignore) == (0, "", "")
