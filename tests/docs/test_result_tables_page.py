"""docs/reference/result_tables.md has a row for each column of the result tables and each key of summary.json."""

import re
from pathlib import Path

import pytest
from helpers.algorithm_trainings import manifest, task

from nnlo_lib.report.statistics.comparison_text import COLUMNS as COMPARISON_COLUMNS
from nnlo_lib.report.tables import load_jobs, summarize
from nnlo_lib.search.best import COSTS, FIRST
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.resource_monitor import COLUMNS as MONITOR_COLUMNS

__all__ = ["manifest"]
PAGE = (Path(__file__).parents[2] / "docs/reference/result_tables.md").read_text()


def documented(table: str) -> set[str]:
    """Return the names in the first cells of a table of the page."""
    section = PAGE.split(f"## {table}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name.split(".")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, manifest) -> FinishedRun:
    job = task(tmp_path_factory.mktemp("task") / "job", manifest, "allreduce", {})
    train_simulated(job, StopFlag())
    evaluate_model(job.run, manifest, job.paths.model, job.paths.evaluation)
    return load_jobs([job.paths.folder])[0]


def test_each_column_and_key_has_a_row(finished):
    history = finished.paths.history.read_text().splitlines()[0].split(",")
    assert {name for name in history if "_" not in name[:6]} <= documented("history.csv")
    assert set(finished.summary) <= documented("summary.json")
    columns = {name for name in summarize([finished]) if not name.startswith("val_")}
    assert columns <= documented("summary.csv")
    assert set(COMPARISON_COLUMNS) == documented("comparisons.csv")


def test_each_figure_of_the_monitor_and_of_a_search_has_a_row():
    assert set(MONITOR_COLUMNS) == documented("monitor.csv")
    assert {*FIRST, *COSTS, "error"} <= documented("trials.csv")
