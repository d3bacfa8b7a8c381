"""Several users train on one machine, with the same experiment and the same place for staged data: neither disturbs the other."""

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from helpers.algorithm_trainings import SYNCHRONOUS, measured, task
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place
from helpers.training_here import simulate
from helpers.user_login import start_as

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


def test_a_place_that_another_user_prepared_costs_one_warning(train_as, shared_place, capfd):
    run_as(ATTACKER, (shared_place / f"nnlo-{VICTIM}").mkdir)
    assert train_as() == train_as(VICTIM)
    message = capfd.readouterr().err
    assert message.count("data.stage_to") == 1
    assert f"reads the data set from {shared_place.parent / 'store'}" in message


# `nnlo run` of two users on MPI ranks

NETWORK = """
import os
import time
from pathlib import Path

from torch import nn


def meet(place):
    '''Wait for a rank of every user, so that the trainings surely run at the same time.'''
    (place / f"rank-{os.getuid()}-{os.getpid()}").touch()
    end = time.monotonic() + 300
    while len({path.name.split("-")[1] for path in place.glob("rank-*")}) < 2:
        assert time.monotonic() < end, "the other user does not train"
        time.sleep(0.02)


def get_model(classes=10):
    # Only ranks have this variable; `nnlo run` builds the model before it starts them.
    if "MEETING" in os.environ and "PMI_RANK" in os.environ:
        meet(Path(os.environ["MEETING"]))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))
"""
SETTINGS = {
    "name": "t",
    "model": {"name": "net.py"},
    "train": {"epochs": 3, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.02}},
    "algorithm": {"name": "allreduce"},
    "parallel": {"ranks": 2},
    "data": {"stage_to": "$TMPDIR"},
}
JOB = "results/t/allreduce/seed-0"


def home_of(user, place):
    """Return the home of a user, with the experiment in it."""
    home = place.parent / f"home-{user}"
    home.mkdir()
    (home / "net.py").write_text(NETWORK)
    (home / "t.yaml").write_text(yaml.safe_dump(SETTINGS))
    for path in (home, *home.iterdir()):
        os.chown(path, user, user)
    home.chmod(0o700)
    return home


def result(home):
    """Return the model and the metrics of each epoch."""
    rows = [json.loads(line) for line in (home / JOB / "state/history.jsonl").read_text().splitlines()]
    metrics = [(row["epoch"], row["train_loss"], row["val_loss"]) for row in rows]
    return (home / JOB / "model.safetensors").read_bytes(), metrics


def owners(folder):
    """Return the owners of a folder and of everything in it."""
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def segments_of(users):
    """Return the shared memory segments of users; ranks of other tests remove theirs at the same time."""
    found = []
    for path in Path("/dev/shm").glob("mpich_shm_*"):
        with suppress(FileNotFoundError):
            found += [path] if path.stat().st_uid in users else []
    return found


@pytest.mark.real
@pytest.mark.mpi
def test_two_users_train_at_the_same_time_in_one_tmpdir(shared_place):
    meeting = shared_place.parent / "meeting"
    meeting.mkdir()
    meeting.chmod(0o1777)
    homes = {user: home_of(user, shared_place) for user in (VICTIM, ATTACKER)}
    command = [str(Path(sys.executable).with_name("nnlo")), "run", "t.yaml"]
    variables = {"TMPDIR": str(shared_place), "MEETING": str(meeting)}
    processes = {user: start_as(user, home, command, **variables) for user, home in homes.items()}
    said = {user: process.communicate(timeout=800)[0] for user, process in processes.items()}
    assert {path.stat().st_uid for path in meeting.iterdir()} == set(homes)
    assert {path.name for path in shared_place.iterdir()} == {f"nnlo-{user}" for user in homes}
    for user, home in homes.items():
        assert processes[user].returncode == 0, said[user]
        assert "Warning" not in said[user]
        assert "data.stage_to:" not in said[user]
        assert list((shared_place / f"nnlo-{user}").glob("digits-*/train-*.h5")), "no staged copy"
        assert owners(home) == owners(shared_place / f"nnlo-{user}") == {user}
    assert result(homes[VICTIM]) == result(homes[ATTACKER])
    assert not segments_of(homes)
