"""`--log-level`, `--log-file` and their variables: what the terminal, the file and the record of a run have."""

import logging
import os
import re
from pathlib import Path

import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.training_process import started as training

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import PACKAGE, configure_logging, get_logger
from nnlo_lib.state.run_log import RunLog

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


def test_the_variable_is_the_same_as_the_option(tmp_path, monkeypatch):
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
    assert "--log-file: cannot write to /no/x.log: No such file" in refused(
        check(tmp_path, "--log-file", "/no/x.log", "check", "x.yaml")
    )
    monkeypatch.setenv("NNLO_LOG_LEVEL", "loud")
    message = refused(check(tmp_path, "check", "x.yaml"))
    assert "NNLO_LOG_LEVEL: unknown level 'loud'; one of: debug, info, warning, error" in message
    with pytest.raises(UserError):
        configure_logging(None, None)


def test_the_record_of_a_run_has_all_messages(tmp_path, capsys):
    configure_logging("error", str(tmp_path / "all.log"))
    log = RunLog(tmp_path / "state", enabled=True)
    log.write("epoch 1")
    log.warn("slow")
    assert capsys.readouterr().err == ""
    assert (tmp_path / "all.log").read_text() == ""
    lines = (tmp_path / "state/log.txt").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["epoch 1", "warning: slow"]
    get_logger("nnlo_lib.x").error("lost")
    assert capsys.readouterr().err == "nnlo: error: lost\n"
    assert (tmp_path / "all.log").read_text().endswith(" error: lost\n")


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_the_ranks_have_the_level_of_their_command(tmp_path: Path):
    run = training(tmp_path, parallel={"ranks": 2}, train={"epochs": 1})
    said = run.finish("--log-level", "debug", "--launcher", "/no/mpiexec -x", expect=2)
    assert re.search(r"debug: starts the ranks: /no/mpiexec -x -n 2 .*nnlo_lib.train.rank TASK", said)
    assert "train_loss" not in run.finish("--log-level", "warning")
    assert "train_loss" in (run.job / "log.txt").read_text()
