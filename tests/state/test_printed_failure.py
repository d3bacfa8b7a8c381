"""A rank that cannot write its failure prints it, and the launcher finds it in the output of all ranks."""

import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnlo_lib.launch.launcher_output import LauncherOutput
from nnlo_lib.state.printed_failure import READ_TIMEOUT_S, print_failure


def test_a_printed_failure_is_found_and_not_shown(capfd):
    print_failure({"rank": 3, "error": "No space left on device\nat step 7"})
    print_failure({"rank": 5, "error": "another"})
    output = LauncherOutput()
    shown = [line for line in capfd.readouterr().err.splitlines() if line and output.parse_line(line)]
    assert shown == []
    assert output.failures == {
        "3": {"rank": 3, "error": "No space left on device\nat step 7"},
        "5": {"rank": 5, "error": "another"},
    }


def test_other_lines_are_output():
    output = LauncherOutput()
    for line in ("epoch 1/3", "nnlo failure: ", "nnlo failure: {torn", 'nnlo failure: ["rank"]'):
        assert output.parse_line(line)
    assert output.failures == {}


RANK = """
from pathlib import Path
from nnlo_lib.state import printed_failure

printed_failure.READ_TIMEOUT_S = {limit}
printed_failure.print_failure({{"rank": 3, "error": "disk full"}})
Path("returned").touch()
"""


def rank(folder: Path, limit: float) -> "subprocess.Popen[bytes]":
    """Start a rank that prints a failure into a pipe, and return when the failure is in the pipe."""
    command = [sys.executable, "-c", RANK.format(limit=limit)]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE)
    assert select.select([process.stderr], [], [], 240)[0]
    return process


@pytest.mark.processes
def test_the_rank_waits_until_the_line_has_been_read(tmp_path):
    process = rank(tmp_path, limit=600)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert not (tmp_path / "returned").exists()
    assert b"disk full" in process.stderr.read()
    assert process.wait(240) == 0
    assert (tmp_path / "returned").exists()


@pytest.mark.processes
def test_the_rank_does_not_wait_for_ever(tmp_path):
    process = rank(tmp_path, limit=0.1)
    assert process.wait(240) == 0
    assert (tmp_path / "returned").exists()
    process.stderr.close()


def test_a_file_is_not_waited_for(capfd):
    before = time.monotonic()
    with open("/dev/stderr", "a") as other:
        other.write(1000 * "line of another rank\n")
    print_failure({"rank": 3})
    assert time.monotonic() - before < READ_TIMEOUT_S
