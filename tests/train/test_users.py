"""Several users train on one machine, with the same experiment and the same place for staged data: neither disturbs the other."""

import os
import shutil
from dataclasses import replace

import pytest
from helpers.algorithm_trainings import SYNCHRONOUS, measured, task
from helpers.other_users import ATTACKER, GROUP, MEMBERS, VICTIM, run_as, shared_place
from helpers.training_here import attempt_here, simulate
from helpers.training_process import StopAfter

from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag

__all__ = ["shared_place"]
pytestmark = pytest.mark.processes


@pytest.fixture
def train_as(manifest, shared_place):
    """Return a function that trains as a user in a folder of this user, and returns the weights."""
    shutil.copytree(manifest.parent, shared_place.parent / "store")
    (shared_place.parent / "store").chmod(0o755)

    def train(user=None):
        home = shared_place.parent / str(user)
        home.mkdir()
        data = {"validation": 0.5, **({"stage_to": str(shared_place)} if user else {})}
        settings = SYNCHRONOUS["dsgt"] | {"data": data}
        job = task(home / "job", shared_place.parent / "store/manifest.json", "dsgt", settings)
        if user:
            os.chown(home, user, user)
            assert run_as(user, lambda: train_simulated(job, StopFlag()))
        else:  # also imports the modules, which can be in root's home
            simulate(job)
        return measured(job)[3]

    return train


def test_both_train_with_a_staged_copy_of_their_own(train_as, shared_place, capfd):
    assert train_as() == train_as(VICTIM) == train_as(ATTACKER)
    assert "data.stage_to" not in capfd.readouterr().err
    assert {path.name for path in shared_place.iterdir()} == {f"nnlo-{VICTIM}", f"nnlo-{ATTACKER}"}


@pytest.mark.parametrize("umask", [0o002, 0o022])
def test_a_member_of_a_group_continues_the_training_of_another(manifest, shared_place, umask):
    """From checkpoints and with attempts of the first one; with umask 022, nothing is changed before the refusal."""
    folder = shared_place.parent
    shutil.copytree(manifest.parent, folder / "store")
    (folder / "project").mkdir()
    os.chown(folder / "project", 0, GROUP)
    (folder / "project").chmod(0o2775)
    job = task(folder / "project/job", folder / "store/manifest.json", "dsgt", SYNCHRONOUS["dsgt"])
    simulate(replace(job, folder=folder / "undisturbed"))
    first, second = MEMBERS

    def attempt(user, stop):
        return run_as(user, lambda: attempt_here(job, stop).reason, GROUP, umask)

    assert attempt(first, StopAfter(20)) == "preempted"
    before = {path: path.stat().st_mtime_ns for path in job.folder.rglob("*")}
    if umask == 0o022:
        owned = f"cannot write .*: {job.state} belongs to user {first}, and you cannot write there; ask for `chmod -R g.w"
        with pytest.raises(AssertionError, match=owned):
            attempt(second, StopFlag())
        assert {path: path.stat().st_mtime_ns for path in job.folder.rglob("*")} == before
        return
    assert attempt(second, StopFlag()) == "finished"
    assert measured(job) == measured(replace(job, folder=folder / "undisturbed"))
    assert {path.stat().st_uid for path in job.folder.rglob("*")} == {first, second}
