"""Behavior of an attempt if another launcher holds the lease: batch jobs wait, interactive commands fail."""

import os
from types import SimpleNamespace

import pytest

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.state.lease_owner import LeaseOwner
from nnlo_lib.train.task import Task


class Heart:
    """Time limit that is near at the second check; each check renews the lease of the other launcher."""

    def __init__(self, lease):
        self._lease, self._looks = lease, 0

    @property
    def is_near(self):
        self._looks += 1
        os.utime(self._lease, (self._looks, self._looks))
        return self._looks > 1


def held(folder):
    """Return a task and its job context; the lease of the run folder belongs to this live process."""
    task = Task("t", "t", Run(), 0, None, 1, folder / "manifest.json", folder)
    task.state.mkdir()
    LeaseOwner.for_this_process().write(task.state / "lease.json")
    return task, JobContext(None, Heart(task.state / "lease.json"), SimpleNamespace(first=None))


def test_what_snakemake_starts_waits_also_without_a_scheduler(tmp_path):
    task, place = held(tmp_path)
    assert run_attempt(task, LaunchOptions(attempt_number=1), place).reason == "preempted"


def test_a_person_is_told(tmp_path):
    task, place = held(tmp_path)
    with pytest.raises(UserError, match="is being written by process"):
        run_attempt(task, LaunchOptions(), place)
