"""Messages on the terminal and in the log of a run: prefixes by level, and a closed stderr."""

import re
import sys

import pytest

from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.state.run_log import RunLog


class UnreadTerminal:
    """Replacement of stderr with a closed reading end."""

    def write(self, text: str) -> None:
        raise BrokenPipeError

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize(("level", "line"), [("info", "nnlo: 50% %s\n"), ("warning", "nnlo: warning: 50% %s\n"), ("error", "nnlo: error: 50% %s\n")])  # fmt: skip
def test_the_level_is_a_prefix_once(capsys, level, line):
    for _ in range(2):
        logger = get_logger("nnlo_lib.core.test")
    getattr(logger, level)("50% %s")
    assert capsys.readouterr().err == line


def test_nobody_reads_on(monkeypatch):
    monkeypatch.setattr(sys, "stderr", UnreadTerminal())
    get_logger("nnlo_lib.core.test").error("unread")


def test_a_run_keeps_its_lines_with_the_time(tmp_path, capsys):
    log = RunLog(tmp_path, enabled=True)
    log.write("one\ntwo")
    log.warn("three")
    assert capsys.readouterr().err == "one\ntwo\nwarning: three\n"
    lines = (tmp_path / "log.txt").read_text().splitlines()
    times, texts = zip(*((line[:19], line[20:]) for line in lines), strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time) for time in times)
    assert texts == ("one", "two", "warning: three")


def test_other_ranks_write_nothing(tmp_path, capsys):
    RunLog(tmp_path / "state", enabled=False).warn("unwritten")
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "state").exists()
