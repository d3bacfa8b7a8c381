"""FinishedRun reads the files of a finished run lazily and names damaged files in its errors."""

import json

import pytest

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun, finished_runs

SUMMARY = {
    "run": "four", "seed": 1, "config": Run().model_dump(mode="json"), "seconds": {"total": 6.0}, "bytes_sent": {},
    "samples_per_second": 1.0, "ranks": 2, "epochs": 3, "training_seconds": 5.0,
}  # fmt: skip


@pytest.fixture
def run(tmp_path) -> FinishedRun:
    folder = tmp_path / "four/seed-1"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    (folder / "history.csv").write_text("epoch,seconds\n1,2.0\n2,4.0\n3,6.0\n")
    return FinishedRun(folder)


def test_what_the_summary_says(run):
    assert (run.key, run.epochs, run.roles, run.transport) == (("four", 1, None), 3, ["worker"] * 2, "mpi")
    assert run.config == Run()
    assert (run.messages, run.training_seconds, run.attempt_statistics) == (None, 5.0, None)


def test_a_summary_of_another_version_is_named(run):
    message = r"seed-1/summary\.json: written by another version of nnlo, without `legs`; .*train again under another `name:`"
    with pytest.raises(UserError, match=message):
        _ = run.rank_count_changed


def test_the_history_as_numbers_and_as_text(run):
    assert list(run.history["seconds"]) == [2.0, 4.0, 6.0]
    assert run.history_text[-1] == {"epoch": "3", "seconds": "6.0"}


def test_a_history_that_is_too_short_is_refused(run):
    run.paths.history.write_text("epoch,seconds\n1,2.0\n")
    with pytest.raises(UserError, match=r"history\.csv ends before epoch 3"):
        _ = run.history


def test_a_file_is_read_only_when_it_is_asked_for(run):
    assert run.summary["run"] == "four"
    with pytest.raises(UserError, match=r"cannot read .*evaluation\.json"):
        _ = run.evaluation


def test_only_finished_runs_are_found(run, tmp_path):
    (tmp_path / "four/seed-2").mkdir()  # an unfinished run
    assert [each.folder for each in finished_runs(tmp_path / "four")] == [run.folder]
