"""A rank that cannot write its failure prints it, and the launcher finds it in the output of all ranks."""

import os
from threading import Thread

import pytest

from nnlo_lib.launch.diagnosis import LauncherOutput
from nnlo_lib.state import training_records
from nnlo_lib.state.training_records import print_failure


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


@pytest.fixture
def pipe(monkeypatch):
    """Replace stderr by a pipe; return its reading end."""
    reading, writing = os.pipe()
    monkeypatch.setattr(training_records, "STDERR", writing)
    monkeypatch.setattr(training_records, "write_stderr", lambda text: os.write(writing, text.encode()))
    yield reading
    os.close(reading)
    os.close(writing)


def test_the_rank_waits_until_the_line_has_been_read(pipe, monkeypatch):
    monkeypatch.setattr(training_records, "READ_TIMEOUT_S", 3600)
    rank = Thread(target=print_failure, args=({"rank": 3, "error": "disk full"},), daemon=True)
    rank.start()
    rank.join(0.2)
    assert rank.is_alive()
    assert b"disk full" in os.read(pipe, 1000)
    rank.join(60)
    assert not rank.is_alive()


def test_the_rank_does_not_wait_for_ever(pipe, monkeypatch):
    monkeypatch.setattr(training_records, "READ_TIMEOUT_S", 0.05)
    print_failure({"rank": 3})
    assert os.read(pipe, 1000)


def test_the_rank_does_not_wait_for_the_reader_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(training_records, "READ_TIMEOUT_S", 3600)
    with (tmp_path / "log").open("w") as log:
        monkeypatch.setattr(training_records, "STDERR", log.fileno())
        print_failure({"rank": 3})
