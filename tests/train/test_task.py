"""What a checkpoint must agree with to be continued."""

import pytest

from nnlo_lib.config import Run
from nnlo_lib.train.task import Task


def key(tmp_path, **train):
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    return Task("t", "t", Run.model_validate({"train": train}), 0, None, 1, manifest, tmp_path).key


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
