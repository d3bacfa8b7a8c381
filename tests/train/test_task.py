"""The fingerprint of a task, which must match for a resume from a checkpoint.

test_schedules.py has schedules that end with the training, test_user_files.py edits of the user's files.
"""

import json

import pytest

from nnlo_lib.config import Run
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.train.task import Task


@pytest.fixture
def key(tmp_path):
    """Return a function from settings, or from a run, to the fingerprint."""
    (tmp_path / "manifest.json").write_text("{}")

    def fingerprint(run):
        run = run if isinstance(run, Run) else Run.model_validate(run)
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    return fingerprint


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
