"""The fingerprint of a task, which must match for a resume from a checkpoint."""

import json

import pytest

from nnlo_lib.config import Run
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.train.task import Task

ENDING = [{"name": name, "final": 1e-4} for name in ("linear", "log")]
ENDLESS = [{"name": "constant"}, {"name": "diminishing", "mu": 0.1}]


@pytest.fixture
def key(tmp_path):
    """Return a function from settings, or from a run, to the fingerprint."""
    (tmp_path / "manifest.json").write_text("{}")

    def fingerprint(run):
        run = run if isinstance(run, Run) else Run.model_validate(run)
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    return fingerprint


@pytest.mark.parametrize("schedule", [*ENDING, *ENDLESS], ids=lambda schedule: schedule["name"])
def test_more_epochs_go_on_unless_the_schedule_ends(key, schedule):
    two, three = (key({"train": {"epochs": epochs, "schedule": schedule}}) for epochs in (2, 3))
    assert (two == three) == (schedule in ENDLESS)


def test_a_key_that_is_new_and_has_its_default_changes_nothing(key):
    class Later(TrainConfig):
        foresight: int = 0

    def later(**train):
        changed = Later.model_validate({"epochs": 2, "batch_size": 7, **train})
        return key(Run().model_copy(update={"train": changed}))

    assert later() == later(foresight=0) == key({"train": {"epochs": 2, "batch_size": 7}})
    assert later(foresight=1) != later()


def test_settings_that_change_the_result_or_not(key):
    names = [{"algorithm": {"name": name}} for name in ("allreduce", "average", "diloco", "dsgd")]
    rates = [{"train": {"optimizer": {"name": "sgd", "lr": rate}}} for rate in (0.1, 0.2)]
    assert len({key(run) for run in names + rates}) == 6
    places = [{"parallel": parallel} for parallel in ({}, {"ranks": 5}, {"transport": "simulated"})]
    written_out = json.loads(Run().model_dump_json())
    assert len({key(run) for run in [*places, written_out]}) == 1


ALGORITHM = """
from nnlo_lib import Algorithm

class Mine(Algorithm):
    def on_gradient(self, replica, share):
        pass
    def before_evaluation(self, replica):
        pass
"""


def test_an_edit_of_a_users_class_is_another_task(tmp_path, monkeypatch, key):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(ALGORITHM)
    run = Run.model_validate({"algorithm": {"name": "mine.py:Mine"}})
    before = key(run)
    assert key(run) == before
    (tmp_path / "mine.py").write_text(ALGORITHM.replace("pass", "return None", 1))
    assert key(run) != before
