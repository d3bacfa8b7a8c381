"""The fingerprint of a task, which must match for a resume from a checkpoint."""

import json

import pytest

from nnlo_lib.config import Run
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.train.task import Task


def key(tmp_path, **train):
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    return Task("t", "t", Run.model_validate({"train": train}), 0, None, 1, manifest, tmp_path).fingerprint


@pytest.mark.parametrize("schedule", [{"name": "constant"}, {"name": "diminishing", "mu": 0.1}])
def test_more_epochs_go_on(tmp_path, schedule):
    assert key(tmp_path, epochs=2, schedule=schedule) == key(tmp_path, epochs=3, schedule=schedule)


@pytest.mark.parametrize("name", ["linear", "log"])
def test_more_epochs_are_another_schedule_if_it_ends(tmp_path, name):
    schedule = {"name": name, "final": 1e-4}
    assert key(tmp_path, epochs=2, schedule=schedule) != key(tmp_path, epochs=3, schedule=schedule)


def test_another_learning_rate_starts_afresh(tmp_path):
    rates = ({"name": "sgd", "lr": rate} for rate in (0.1, 0.2))
    one, other = (key(tmp_path, optimizer=optimizer) for optimizer in rates)
    assert one != other


def test_a_key_that_is_new_and_has_its_default_changes_nothing(tmp_path):
    class Later(TrainConfig):
        foresight: int = 0

    before = key(tmp_path, epochs=2, batch_size=7)

    def later(**train):
        run = Run().model_copy(
            update={"train": Later.model_validate({"epochs": 2, "batch_size": 7, **train})}
        )
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    assert later() == later(foresight=0) == before
    assert later(foresight=1) != before


def test_a_default_that_is_written_out_is_the_default(tmp_path):
    written = json.loads(Run().model_dump_json())
    tasks = (
        Task("t", "t", Run.model_validate(run), 0, None, 1, tmp_path / "manifest.json", tmp_path)
        for run in ({}, written)
    )
    key(tmp_path)
    one, other = (task.fingerprint for task in tasks)
    assert one == other


def test_names_that_are_told_apart_by_nothing_else_have_keys_of_their_own(tmp_path):
    key(tmp_path)
    runs = [
        Run.model_validate({"algorithm": {"name": name}})
        for name in ("allreduce", "average", "diloco", "dsgd")
    ]
    keys = {Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint for run in runs}
    assert len(keys) == len(runs)


def test_ranks_and_where_they_are_change_nothing(tmp_path):
    key(tmp_path)
    runs = [
        Run.model_validate({"parallel": parallel})
        for parallel in ({}, {"ranks": 5}, {"transport": "simulated"})
    ]
    assert (
        len(
            {
                Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint
                for run in runs
            }
        )
        == 1
    )


ALGORITHM = """
from nnlo_lib import Algorithm

class Mine(Algorithm):
    def on_gradient(self, replica, share):
        pass
    def before_evaluation(self, replica):
        pass
"""


def test_an_edit_of_a_users_class_is_another_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "mine.py").write_text(ALGORITHM)
    run = Run.model_validate({"algorithm": {"name": "mine.py:Mine"}})

    def fingerprint():
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    before = fingerprint()
    assert fingerprint() == before
    (tmp_path / "mine.py").write_text(ALGORITHM.replace("pass", "return None", 1))
    assert fingerprint() != before
