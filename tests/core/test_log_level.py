"""Messages on the terminal, in `--log-file` and in the record of a run: levels, prefixes, times, and a closed stderr."""

import logging
import os
import re
import sys
from pathlib import Path

import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.training_process import started as training

from nnlo_lib.core import logging_setup
from nnlo_lib.core.logging_setup import PACKAGE, configure_logging, get_logger
from nnlo_lib.state.training_records import RunLog

EXPERIMENT = "parallel: {gpus_per_rank: auto, ranks: 1}\nmodel: {name: simplecnn}\n"
AUTO = "parallel.gpus_per_rank: auto is"


@pytest.fixture(autouse=True)
def default_logging(monkeypatch):
    """Restore the variables and the handlers after each test."""
    for name in ("NNLO_LOG_LEVEL", "NNLO_LOG_FILE"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores what the command sets
        monkeypatch.delenv(name)
    yield
    for name in ("NNLO_LOG_LEVEL", "NNLO_LOG_FILE"):
        os.environ.pop(name, None)
    logging.getLogger(PACKAGE).handlers = []
    get_logger(PACKAGE)


def check(folder, *options):
    (folder / "x.yaml").write_text(EXPERIMENT)
    return nnlo(*options, folder=folder)


@pytest.mark.parametrize(
    "options", [("--log-level", "warning", "check", "x.yaml"), ("check", "x.yaml", "--log-level", "warning")]
)
def test_the_level_before_and_after_the_name_of_the_command(tmp_path, options):
    assert AUTO in check(tmp_path, "check", "x.yaml").stderr
    done = check(tmp_path, *options)
    assert done.returncode == 0
    assert AUTO not in done.stderr
    assert os.environ["NNLO_LOG_LEVEL"] == "warning"  # for the ranks


def test_the_option_overrides_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("NNLO_LOG_LEVEL", "error")
    assert AUTO not in check(tmp_path, "check", "x.yaml").stderr
    assert AUTO in check(tmp_path, "--log-level", "info", "check", "x.yaml").stderr


def test_the_file_gets_the_messages_with_time_stamps(tmp_path):
    done = check(tmp_path, "check", "x.yaml", "--log-file", "all.log")
    text = (tmp_path / "all.log").read_text()
    assert AUTO in done.stderr
    assert re.search(rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {AUTO}", text, re.MULTILINE)
    assert os.environ["NNLO_LOG_FILE"] == str(tmp_path / "all.log")


def test_bad_values_are_refused(tmp_path, monkeypatch):
    assert check(tmp_path, "--log-level", "loud", "check", "x.yaml").returncode == 2
    done = check(tmp_path, "--log-file", "/no/x.log", "check", "x.yaml")
    assert "--log-file: cannot write to /no/x.log: No such file" in refused(done)
    monkeypatch.setenv("NNLO_LOG_LEVEL", "loud")
    message = refused(check(tmp_path, "check", "x.yaml"))
    assert "NNLO_LOG_LEVEL: unknown level 'loud'; one of: debug, info, warning, error" in message


def test_the_record_of_a_run_has_all_messages_with_their_times(tmp_path, capsys):
    RunLog(tmp_path / "state", enabled=True).write("epoch 1\n50% %s")
    assert capsys.readouterr().err == "epoch 1\n50% %s\n"
    configure_logging("error", str(tmp_path / "all.log"))
    RunLog(tmp_path / "state", enabled=True).warn("slow")
    assert capsys.readouterr().err == ""
    assert (tmp_path / "all.log").read_text() == ""
    lines = (tmp_path / "state/log.txt").read_text().splitlines()
    assert [line[20:] for line in lines] == ["epoch 1", "50% %s", "warning: slow"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line[:20]) for line in lines)
    get_logger("nnlo_lib.x").error("lost")
    assert capsys.readouterr().err == "nnlo: error: lost\n"
    assert (tmp_path / "all.log").read_text().endswith(" error: lost\n")
    RunLog(tmp_path / "other", enabled=False).warn("unwritten")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("level", "prefix"), [("info", ""), ("warning", "warning: "), ("error", "error: ")])
def test_the_level_is_a_prefix_once(capsys, level, prefix):
    for _ in range(2):
        logger = get_logger("nnlo_lib.core.test")
    getattr(logger, level)("50% %s")
    assert capsys.readouterr().err == f"nnlo: {prefix}50% %s\n"


def test_a_closed_terminal_stops_nothing(monkeypatch):
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Closed())
    get_logger("nnlo_lib.core.test").error("unread")


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_the_ranks_have_the_level_of_their_command(tmp_path: Path):
    run = training(tmp_path, parallel={"ranks": 2}, train={"epochs": 1})
    said = run.finish("--log-level", "debug", "--launcher", "/no/mpiexec -x", expect=2)
    assert re.search(r"debug: starts the ranks: /no/mpiexec -x -n 2 .*nnlo_lib.train.rank TASK", said)
    assert "train_loss" not in run.finish("--log-level", "warning")
    assert "train_loss" in (run.job / "log.txt").read_text()


@pytest.mark.parametrize(
    ("visible", "terminal", "drawn"), [(True, "xterm", True), (False, "xterm", False), (True, "dumb", False)]
)
def test_a_bar_is_drawn_on_a_terminal_only_and_erases_no_line_but_its_own(
    monkeypatch, capsys, visible, terminal, drawn
):
    monkeypatch.setattr(logging_setup, "DRAWING_SECONDS", 0.0)
    monkeypatch.setenv("TERM", terminal)
    with logging_setup.progress_bar("epoch [1]", 10, "samples", visible=visible) as show:
        show(4, lambda: "loss [/b] 0.5")
        show(10)
    shown = capsys.readouterr().err
    for text in ("epoch [1]", " 40%", "loss [/b] 0.5", "100%"):
        assert (text in shown) == drawn
    assert "\x1b[1A" not in shown, "the cursor moves up"
    assert "\x1b[?25l" not in shown, "the cursor is hidden"
