"""Trainings of two users on one machine, with the same experiment and the same `data.stage_to`."""

import os
import shutil

import pytest
from helpers.algorithm_trainings import SYNCHRONOUS, manifest, measured, task
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place

from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

__all__ = ["manifest", "shared_place"]

pytestmark = pytest.mark.processes


@pytest.fixture
def store(manifest, shared_place):
    """Return the manifest of a store that every user can read."""
    shutil.copytree(manifest.parent, shared_place.parent / "store")
    (shared_place.parent / "store").chmod(0o755)
    return shared_place.parent / "store/manifest.json"


def job_of(user, store, place):
    """Return the training of a user, in a folder of this user."""
    home = place.parent / str(user)
    home.mkdir()
    os.chown(home, user, user)
    return task(
        home / "job",
        store,
        "dsgt",
        SYNCHRONOUS["dsgt"] | {"data": {"validation": 0.5, "stage_to": str(place)}},
    )


@pytest.fixture
def expected(store, tmp_path):
    """Return the result without a copy; also imports the modules, which can be in root's home."""
    job = task(tmp_path / "job", store, "dsgt", SYNCHRONOUS["dsgt"])
    assert train_simulated(job, StopFlag())
    return measured(job)


def test_both_train_and_have_the_same_result(store, shared_place, expected, capfd):
    for user in (VICTIM, ATTACKER):
        job = job_of(user, store, shared_place)
        assert run_as(user, lambda job=job: train_simulated(job, StopFlag()))
        assert measured(job)[3] == expected[3]
    assert "data.stage_to" not in capfd.readouterr().err
    assert {path.name for path in shared_place.iterdir()} == {f"nnlo-{VICTIM}", f"nnlo-{ATTACKER}"}


def test_a_place_that_another_user_prepared_costs_one_warning(store, shared_place, expected, capfd):
    run_as(ATTACKER, (shared_place / f"nnlo-{VICTIM}").mkdir)
    job = job_of(VICTIM, store, shared_place)
    assert run_as(VICTIM, lambda: train_simulated(job, StopFlag()))
    assert measured(job)[3] == expected[3]
    message = capfd.readouterr().err
    assert message.count("data.stage_to") == 1
    assert f"reads the data set from {store.parent}" in message
