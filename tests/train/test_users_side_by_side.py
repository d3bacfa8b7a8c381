"""Two real users train at the same time on MPI ranks, with one shared $TMPDIR: neither disturbs the other."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml
from helpers.other_users import ATTACKER, VICTIM, shared_place
from helpers.user_login import start_as

__all__ = ["shared_place"]

pytestmark = [pytest.mark.mpi, pytest.mark.processes]

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
}
NNLO = str(Path(sys.executable).with_name("nnlo"))
JOB = "results/t/allreduce/seed-0"


def home_of(user, place, **data):
    """Return the home of a user, with the experiment in it."""
    home = place.parent / f"home-{user}"
    home.mkdir()
    (home / "net.py").write_text(NETWORK)
    (home / "t.yaml").write_text(yaml.safe_dump(SETTINGS | {"data": data}))
    for path in (home, *home.iterdir()):
        os.chown(path, user, user)
    home.chmod(0o700)
    return home


def result(home):
    """Return the model and the metrics of each epoch."""
    rows = [json.loads(line) for line in (home / JOB / "state/history.jsonl").read_text().splitlines()]
    metrics = [(row["epoch"], row["train_loss"], row["val_loss"]) for row in rows]
    return (home / JOB / "model.safetensors").read_bytes(), metrics


def trained(users, place, **variables):
    """Train as all users at the same time; return the output of each user."""
    processes = {
        user: start_as(user, home, [NNLO, "run", "t.yaml"], **variables) for user, home in users.items()
    }
    said = {user: process.communicate(timeout=600)[0] for user, process in processes.items()}
    for user, process in processes.items():
        assert process.returncode == 0, said[user]
    return said


def owners(folder):
    """Return the owners of a folder and of everything in it."""
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_two_users_train_at_the_same_time_in_one_tmpdir(shared_place):
    alone = home_of(VICTIM + 10, shared_place)
    trained({VICTIM + 10: alone}, shared_place)
    meeting = shared_place.parent / "meeting"
    meeting.mkdir()
    meeting.chmod(0o1777)
    homes = {user: home_of(user, shared_place, stage_to="$TMPDIR") for user in (VICTIM, ATTACKER)}
    said = trained(homes, shared_place, TMPDIR=str(shared_place), MEETING=str(meeting))
    assert {path.stat().st_uid for path in meeting.iterdir()} == {VICTIM, ATTACKER}
    assert {path.name for path in shared_place.iterdir()} == {f"nnlo-{VICTIM}", f"nnlo-{ATTACKER}"}
    for user, home in homes.items():
        assert result(home) == result(alone)
        assert "Warning" not in said[user]
        assert "data.stage_to:" not in said[user]
        assert list((shared_place / f"nnlo-{user}").glob("digits-*/train-*.h5")), "no staged copy"
        assert owners(home) == owners(shared_place / f"nnlo-{user}") == {user}
    left = [path for path in Path("/dev/shm").glob("mpich_shm_*") if path.stat().st_uid in homes]
    assert not left
