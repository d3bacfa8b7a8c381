"""Lease of a run folder: live owners keep it, dead owners lose it, and a lost lease is detected."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from helpers.training_process import wait

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.state import lease_owner
from nnlo_lib.state.lease import Lease, LeaseHeldError
from nnlo_lib.state.lease_owner import LeaseOwner

BEAT, PATIENCE = 0.1, 1.0
LONG_PATIENCE = 100.0  # of a lease that is not to expire during a test


def lease(folder):
    return Lease(folder, BEAT, PATIENCE)


def never():
    return False


def claim_of(folder, **changes):
    """Write a lease of an owner on another host, whose process cannot be checked; return the owner."""
    claim = replace(LeaseOwner.for_this_process(), **{"host": "elsewhere", **changes})
    claim.write(folder / "lease.json")
    return claim


def holder(folder):
    return LeaseOwner.parse((folder / "lease.json").read_bytes())


@pytest.fixture
def slurm_job(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")


def test_the_first_owner_writes_its_name_and_takes_it_away_again(tmp_path):
    own = lease(tmp_path / "state")
    assert own.acquire(False, never) is None
    said = json.loads((tmp_path / "state/lease.json").read_text())
    assert (said["host"], said["pid"], said["job"]) == (socket.gethostname(), os.getpid(), None)
    own.release()
    assert list((tmp_path / "state").iterdir()) == []


def test_a_live_owner_is_respected_by_those_who_cannot_wait(tmp_path):
    own = lease(tmp_path)
    own.acquire(False, never)
    with pytest.raises(
        UserError, match=rf"process {os.getpid()} on {socket.gethostname()}.*wait until it exits"
    ):
        lease(tmp_path).acquire(False, never)
    assert not own.lost.is_set()
    own.release()


@pytest.mark.long
def test_a_job_waits_until_it_may_no_longer_or_the_owner_leaves(tmp_path):
    own, other = lease(tmp_path), lease(tmp_path)
    own.acquire(False, never)
    started = time.monotonic()
    with pytest.raises(LeaseHeldError):
        other.acquire(True, lambda: time.monotonic() > started + 2 * PATIENCE)
    own.release()
    assert other.acquire(True, never) is None
    other.release()


@pytest.mark.processes
def test_a_dead_process_of_this_host_is_succeeded_at_once(tmp_path, capsys):
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    dead = claim_of(tmp_path, host=socket.gethostname(), pid=int(child.stdout))
    own, started = Lease(tmp_path, BEAT, LONG_PATIENCE), time.monotonic()
    assert own.acquire(False, never).lease_owner == dead
    assert time.monotonic() - started < LONG_PATIENCE
    assert f"process {dead.pid} on" in capsys.readouterr().err
    own.release()


def test_a_process_with_a_dead_ones_number_is_not_that_one(tmp_path):
    dead = claim_of(tmp_path, host=socket.gethostname(), started=ProcessIdentity.current().started - 1)
    own = Lease(tmp_path)
    assert own.acquire(False, never).lease_owner == dead
    own.release()


@pytest.mark.long
@pytest.mark.parametrize("ahead", [-1e6, 1e6], ids=["its clock is behind", "its clock is ahead"])
def test_silence_is_measured_by_ones_own_clock(tmp_path, ahead):
    gone = claim_of(tmp_path)
    os.utime(tmp_path / "lease.json", (time.time() + ahead,) * 2)
    own, started = lease(tmp_path), time.monotonic()
    assert own.acquire(False, never).lease_owner == gone
    assert PATIENCE < time.monotonic() - started < LONG_PATIENCE  # far from the error of the clock
    own.release()


def test_what_a_crash_left_of_a_lease_is_succeeded_too(tmp_path):
    (tmp_path / "lease.json").write_text("")
    own = lease(tmp_path)
    assert own.acquire(False, never) is not None
    own.release()


@pytest.mark.processes
def test_only_one_of_many_succeeds_a_dead_owner(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from nnlo_lib.state.lease import *\n"
        f"own = Lease(Path(sys.argv[1]), {BEAT}, {PATIENCE})\n"
        "try: own.acquire(False, lambda: False)\n"
        "except UserError: sys.exit(2)\n"
        "sys.stdin.read(); sys.exit(own.lost.is_set())"
    )
    claim_of(tmp_path)
    command = [sys.executable, "-c", program, tmp_path]
    rivals = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(4)]
    wait("three rivals give up", lambda: sum(rival.poll() is not None for rival in rivals) >= 3)
    for rival in rivals:
        rival.communicate(timeout=100)  # closes the input, for which the owner waits
    assert sorted(rival.returncode for rival in rivals) == [0, 2, 2, 2]


def test_a_jobs_next_run_takes_over_from_the_one_on_a_lost_node(tmp_path, slurm_job):
    old, new = lease(tmp_path), lease(tmp_path)
    old.acquire(True, never)
    evicted = new.acquire(True, never)
    assert evicted is not None
    assert old.lost.is_set()  # the old owner notices the loss before the new owner starts
    assert not new.lost.is_set()
    old.release()
    assert holder(tmp_path).owner != evicted.lease_owner.owner
    new.release()
    assert not (tmp_path / "lease.json").exists()


@pytest.fixture
def answer(monkeypatch):
    """Return a function that sets whether the owner's job has ended; it returns the list of queried jobs."""

    def set_answer(ended):
        asked = []
        monkeypatch.setattr(BatchJob, "has_ended", lambda job: asked.append(job.job_id) or ended)
        monkeypatch.setattr(lease_owner, "JOB_CHECK_AFTER_S", 0.2)
        return asked

    return set_answer


def test_the_lease_of_a_job_that_has_ended_is_taken_over_before_the_timeout(tmp_path, answer):
    asked = answer(True)
    gone = claim_of(tmp_path, scheduler="slurm", job="5")
    own = Lease(tmp_path, BEAT, patience=3600)
    assert own.acquire(False, never).lease_owner == gone
    assert asked == ["5"]
    own.release()


@pytest.mark.long
def test_the_scheduler_is_asked_once_for_a_silent_job(tmp_path, answer):
    asked = answer(False)
    gone = claim_of(tmp_path, scheduler="slurm", job="5")
    own = lease(tmp_path)
    assert own.acquire(False, never).lease_owner == gone
    assert asked == ["5"]
    own.release()


def test_the_scheduler_is_not_asked_for_a_process_of_this_host(tmp_path, answer, slurm_job):
    asked = answer(True)
    own, other = lease(tmp_path), Lease(tmp_path, BEAT, patience=3600)
    own.acquire(False, never)
    os.utime(tmp_path / "lease.json")
    with pytest.raises(UserError, match="is being written by"):
        other.acquire(False, never)
    assert asked == []
    own.release()


@pytest.mark.parametrize("patient", [True, False])
def test_a_requeued_job_takes_over_from_its_earlier_run(tmp_path, slurm_job, monkeypatch, patient):
    earlier = claim_of(tmp_path, host="elsewhere", restarts=1)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    own = Lease(tmp_path, BEAT, patience=3600)
    assert own.acquire(patient, never).lease_owner == earlier
    assert holder(tmp_path).restarts == 2
    own.release()


def test_a_second_command_of_an_interactive_job_does_not_take_over(tmp_path, slurm_job):
    claim_of(tmp_path, host="elsewhere")
    with pytest.raises(LeaseHeldError):
        lease(tmp_path).acquire(False, lambda: True)


def test_a_lease_of_an_older_version_has_no_restarts(tmp_path):
    claim = claim_of(tmp_path)
    fields = json.loads((tmp_path / "lease.json").read_text())
    del fields["restarts"]
    assert LeaseOwner.parse(json.dumps(fields).encode()) == claim


@pytest.mark.parametrize("loss", ["removed", "rewritten", "folder gone"])
def test_a_lost_lease_is_noticed(tmp_path, loss):
    state = tmp_path / "state"
    own = lease(state)
    own.acquire(False, never)
    if loss == "rewritten":
        claim_of(state)
    elif loss == "removed":
        (state / "lease.json").unlink()
    else:
        state.rename(tmp_path / "elsewhere")
    renewed = (state / "lease.json").stat().st_mtime_ns if loss == "rewritten" else None
    wait("the loss is noticed", own.lost.is_set)
    own.release()
    if renewed:
        assert (state / "lease.json").stat().st_mtime_ns == renewed, (
            "the lease of another owner is not renewed"
        )
    assert (state / "lease.json").exists() == (loss == "rewritten")


def test_a_disk_that_refuses_is_named(tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cannot write .*lease\.json"):
        lease(tmp_path / "state").acquire(False, never)
