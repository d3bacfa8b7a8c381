"""Stop signals end a command with a sentence, also during imports and if code swallows the exception."""

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

COMMAND = """
import os, signal, sys
from nnlo_lib.core.errors import exit_on_user_error
from nnlo_lib.core.stop_request import StopSignals

def send():
    os.kill(os.getpid(), signal.{name})

def command():
    StopSignals().install()
    {body}
    return 0

sys.exit(exit_on_user_error(command)())
"""
SWALLOWED = """try:
        send()
    except BaseException:
        pass
    send()"""
CLEANED = """try:
        send()
    finally:
        print("cleaned up")"""


def run(folder, body, name="SIGTERM", **options):
    """Return status, output and errors of a command with this body."""
    script = folder / "command.py"
    script.write_text(COMMAND.format(body=body, name=name))
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_ends_a_command_after_it_has_cleaned_up(tmp_path, name):
    assert run(tmp_path, CLEANED, name) == (
        75,
        "cleaned up\n",
        f"nnlo: stopped by {name}; run the same command again\n",
    )


def test_a_signal_during_an_import_ends_the_command_at_once(tmp_path):
    """Compiled code that imports can swallow an exception, or raise another one."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept BaseException:\n    pass\n"
    )
    assert run(tmp_path, "import slow") == (75, "", "nnlo: stopped by SIGTERM; run the same command again\n")


def test_the_second_signal_ends_a_command_that_has_swallowed_the_first(tmp_path):
    assert run(tmp_path, SWALLOWED) == (75, "", "nnlo: stopped by SIGTERM; run the same command again\n")


def test_a_signal_that_the_parent_ignores_stays_ignored(tmp_path):
    assert run(tmp_path, "send()", preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)) == (
        0,
        "",
        "",
    )
