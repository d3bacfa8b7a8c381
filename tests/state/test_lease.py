"""Lease of a run folder: live owners keep it, dead owners lose it, and a lost lease is detected."""

import errno
import fcntl
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
from helpers.training_process import wait

from nnlo_lib.batch import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.state import lease as lease_module
from nnlo_lib.state.lease import MAX_CREDITED_LEASE_GAP_S, Lease, LeaseHeldError, LeaseOwner, OwnerMonitor

BEAT = 0.05
ENDLESS = 3600.0  # patience that no owner exceeds while a test runs on a busy machine
DEAD_PID = 2**22 + 1  # above the largest process number of Linux


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    monkeypatch.setattr(lease_module, "LEASE_POLL_INTERVAL_S", 0.01)


@pytest.fixture
def lease():
    """Return a function that makes the lease of a folder; the test's leases are released at its end."""
    made = []

    def make(folder, patience=ENDLESS):
        made.append(Lease(folder, BEAT, patience))
        return made[-1]

    yield make
    for each in made:
        if each._heartbeat_thread.is_alive():
            each.release()


def never():
    return False


def claim_of(folder, **changes):
    """Write a lease of an owner on another host, whose process cannot be checked; return the owner."""
    claim = replace(LeaseOwner.for_this_process(), **{"host": "elsewhere", **changes})
    claim.write(folder / "lease.json")
    return claim


def holder(folder):
    return LeaseOwner.parse((folder / "lease.json").read_bytes())


def test_the_first_owner_writes_its_name_and_removes_it_at_the_end(tmp_path, lease):
    own = lease(tmp_path / "state")
    assert own.acquire(False, never) is None
    said = json.loads((tmp_path / "state/lease.json").read_text())
    assert (said["host"], said["pid"], said["job"]) == (socket.gethostname(), os.getpid(), None)
    own.release()
    assert list((tmp_path / "state").iterdir()) == []


def test_a_command_is_refused_while_the_owner_lives(tmp_path, lease):
    own = lease(tmp_path)
    own.acquire(False, never)
    said = rf"process {os.getpid()} on {socket.gethostname()}.*wait until it exits"
    with pytest.raises(UserError, match=said):
        lease(tmp_path).acquire(False, never)
    assert not own.lost.is_set()


def test_a_job_waits_until_its_time_is_over_or_the_owner_exits(tmp_path, lease):
    own, other, polls = lease(tmp_path), lease(tmp_path), iter([False] * 5)
    own.acquire(False, never)
    with pytest.raises(LeaseHeldError, match=f"the lease is still held by process {os.getpid()}"):
        other.acquire(True, lambda: next(polls, True))

    def release():
        if own._heartbeat_thread.is_alive():
            own.release()
        return False

    assert other.acquire(True, release) is None


@pytest.mark.parametrize(
    "changes", [{"pid": DEAD_PID}, {"started": 1}], ids=["no process", "another process of the same number"]
)
def test_the_lease_of_a_dead_process_of_this_host_is_taken_over_at_once(tmp_path, lease, capsys, changes):
    dead = claim_of(tmp_path, host=socket.gethostname(), **changes)
    assert lease(tmp_path).acquire(False, never).lease_owner == dead
    assert f"process {dead.pid} on" in capsys.readouterr().err


@pytest.mark.parametrize("emptied", [False, True], ids=["no heartbeat", "a crash has emptied the file"])
def test_the_lease_of_a_silent_owner_is_taken_over(tmp_path, lease, emptied):
    host = claim_of(tmp_path).host
    if emptied:
        (tmp_path / "lease.json").write_text("")
    evicted = lease(tmp_path, patience=0.2).acquire(False, never)
    assert evicted.lease_owner.host == ("an unknown host" if emptied else host)


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of the monitors; return a function that lets seconds pass."""
    now = [1000.0]
    monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def sleep(seconds):
        now[0] += seconds

    return sleep


@pytest.mark.parametrize("ahead", [-1e6, 0, 1e6])
def test_silence_is_measured_by_the_clock_of_the_observer(tmp_path, clock, ahead):
    claim_of(tmp_path)
    path = tmp_path / "lease.json"
    os.utime(path, (2e9 + ahead,) * 2)
    monitor = OwnerMonitor(path, patience=3.0)
    for silence, dead in ((1, False), (1, False), (2, True)):
        clock(silence)
        assert monitor.poll()
        assert monitor.is_dead == dead
    os.utime(path, (2e9 + ahead + 1,) * 2)
    assert monitor.poll()
    assert (monitor.is_dead, monitor.has_shown_heartbeat) == (False, True)


def test_a_suspended_observer_does_not_blame_the_owner(tmp_path, clock):
    claim_of(tmp_path)
    monitor = OwnerMonitor(tmp_path / "lease.json", patience=1.5 * MAX_CREDITED_LEASE_GAP_S)
    clock(1000)
    monitor.poll()
    assert not monitor.is_dead


@pytest.mark.parametrize(
    ("ended", "host", "asked"),
    [(True, "elsewhere", ["5"]), (False, "elsewhere", ["5"]), (True, socket.gethostname(), [])],
    ids=["a job that has ended", "a job that runs", "a process of this host"],
)
def test_the_scheduler_is_asked_once_for_the_job_of_a_silent_owner(
    tmp_path, clock, monkeypatch, ended, host, asked
):
    queries = []
    monkeypatch.setattr(BatchJob, "has_ended", lambda job: queries.append(job.job_id) or ended)
    claim_of(tmp_path, host=host, scheduler="slurm", job="5")
    monitor = OwnerMonitor(tmp_path / "lease.json", patience=ENDLESS)
    for _ in range(4):
        clock(2)
        monitor.poll()
        assert queries == []
        if monitor._silence_s < lease_module.JOB_CHECK_AFTER_S:
            assert not monitor.is_dead
    assert [monitor.is_dead, monitor.is_dead] == [ended and host == "elsewhere"] * 2
    assert queries == asked


def test_one_of_several_launchers_takes_over_from_a_dead_owner(tmp_path, lease):
    claim_of(tmp_path, host=socket.gethostname(), pid=DEAD_PID)
    start = Barrier(4)

    def launch(own):
        start.wait()
        try:
            own.acquire(False, never)
            return True
        except UserError:
            return False

    launchers = [lease(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        owners = list(threads.map(launch, launchers))
    assert sum(owners) == 1
    assert holder(tmp_path) == launchers[owners.index(True)]._this_owner
    assert not any(each.lost.is_set() for each in launchers)


def test_a_launcher_that_is_late_does_not_touch_the_lease_of_the_new_owner(tmp_path, lease, monkeypatch):
    """It has found the earlier owner dead before the other launcher took over."""
    claim_of(tmp_path, host=socket.gethostname(), pid=DEAD_PID)
    found = OwnerMonitor(tmp_path / "lease.json", ENDLESS)
    lease(tmp_path).acquire(False, never)
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("the lease was away for a moment"))
    assert not lease(tmp_path)._take_over(found)


def refusing(number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    return refuse


def test_without_locks_of_files_a_lease_is_taken_over_too(tmp_path, lease, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    dead = claim_of(tmp_path, host=socket.gethostname(), pid=DEAD_PID)
    assert lease(tmp_path).acquire(False, never).lease_owner == dead


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_on_a_file_system_without_hard_links_one_of_several_launchers_gets_the_lease(
    refusal, tmp_path, lease, monkeypatch
):
    monkeypatch.setattr(os, "link", refusing(refusal))
    test_one_of_several_launchers_takes_over_from_a_dead_owner(tmp_path, lease)
    assert [path.name for path in tmp_path.glob("*lease.json*")] == ["lease.json"]
    with pytest.raises(UserError, match="is being written by process"):
        lease(tmp_path).acquire(False, never)


def test_the_next_run_of_a_job_takes_over_from_the_run_on_a_lost_node(tmp_path, lease, monkeypatch):
    sleeps = []
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setattr(lease_module, "time", SimpleNamespace(sleep=sleeps.append, monotonic=time.monotonic))
    old, new = lease(tmp_path), lease(tmp_path)
    old.acquire(True, never)
    evicted = new.acquire(True, never)
    # The old owner notices the loss at its next heartbeat, before the new owner starts.
    assert sleeps[-1] > BEAT
    wait("the old owner notices the loss", old.lost.is_set)
    assert not new.lost.is_set()
    old.release()
    assert holder(tmp_path).owner != evicted.lease_owner.owner
    new.release()
    assert not (tmp_path / "lease.json").exists()


@pytest.mark.parametrize("patient", [True, False])
def test_a_requeued_job_takes_over_from_its_earlier_run(tmp_path, lease, monkeypatch, patient):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    earlier = claim_of(tmp_path, restarts=1)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert lease(tmp_path).acquire(patient, never).lease_owner == earlier
    assert holder(tmp_path).restarts == 2


def test_a_second_command_of_an_interactive_job_does_not_take_over(tmp_path, lease, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    claim_of(tmp_path)
    with pytest.raises(LeaseHeldError):
        lease(tmp_path).acquire(False, lambda: True)


def test_a_lease_of_an_older_version_has_no_restarts(tmp_path):
    claim = claim_of(tmp_path)
    fields = json.loads((tmp_path / "lease.json").read_text())
    del fields["restarts"]
    assert LeaseOwner.parse(json.dumps(fields).encode()) == claim


@pytest.mark.parametrize("loss", ["removed", "rewritten", "folder gone"])
def test_the_owner_notices_the_loss_of_its_lease(tmp_path, lease, loss, monkeypatch):
    state, renewed_after_loss = tmp_path / "state", []
    own = lease(state)
    monkeypatch.setattr(lease_module.os, "utime", lambda _: renewed_after_loss.append(own.lost.is_set()))
    own.acquire(False, never)
    if loss == "rewritten":
        claim_of(state)
    elif loss == "removed":
        (state / "lease.json").unlink()
    else:
        state.rename(tmp_path / "elsewhere")
    wait("the loss is noticed", own.lost.is_set)
    own.release()
    assert (state / "lease.json").exists() == (loss == "rewritten")
    assert not any(renewed_after_loss)  # the lease of another owner is not renewed


def test_the_message_names_a_lease_that_cannot_be_written(tmp_path, lease, monkeypatch):
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cannot write .*lease\.json"):
        lease(tmp_path / "state").acquire(False, never)
    monkeypatch.setattr(os, "link", refusing(errno.ENOSPC))
    with pytest.raises(UserError, match=r"cannot write .*lease.json, .*No space left"):
        lease(tmp_path).acquire(False, never)
