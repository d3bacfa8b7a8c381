"""The watchdog ends ranks that outlive a failure, and a launcher that outlives its ranks."""

import json
import signal
import subprocess
import time
from dataclasses import asdict
from threading import Event
from types import SimpleNamespace

import pytest
from helpers.training_process import wait

from nnlo_lib.core.process import ProcessIdentity
from nnlo_lib.launch import watchdog
from nnlo_lib.launch.watchdog import RankProcesses

pytestmark = pytest.mark.processes
END_S = 250  # for an end that needs milliseconds on a quiet machine


@pytest.fixture
def started():
    """Return a function that starts a process which does not end by itself; all are killed at the end."""
    processes = []

    def start():
        processes.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def watched(tmp_path, started, monkeypatch):
    """Return a launcher process, a rank process that has registered, and the watchdog of both."""
    monkeypatch.setattr(watchdog, "LINGER_TIMEOUT_S", 0.2)
    launcher, rank = started(), started()
    (tmp_path / "0").write_text(json.dumps(asdict(ProcessIdentity.from_pid(rank.pid))))
    return launcher, rank, watchdog_of(tmp_path, launcher, END_S)


def watchdog_of(folder, launcher, timeout):
    return watchdog.Watchdog(RankProcesses(folder), 1, launcher, SimpleNamespace(first=""), Event(), timeout)


def start(watch):
    """Start a watchdog and wait until it has found the rank."""
    watch.start()
    wait("the rank is found", lambda: bool(watch._ranks.registered))


def test_ranks_that_outlive_a_failure_are_killed(watched):
    launcher, rank, watch = watched
    watch.has_failed = lambda: True
    watch.start()
    assert rank.wait(END_S) == launcher.wait(END_S) == -signal.SIGKILL
    watch.join(END_S)
    assert not watch.is_alive()
    assert not watch.outlived_ranks


def test_a_launcher_that_outlives_its_ranks_is_ended(watched, capfd):
    launcher, rank, watch = watched
    start(watch)
    rank.kill()
    rank.wait(END_S)
    assert launcher.wait(END_S) == -signal.SIGTERM
    watch.join(END_S)
    assert watch.outlived_ranks
    assert f"the launcher (process {launcher.pid}) is ended" in capfd.readouterr().err


def test_a_launcher_with_running_ranks_is_left_alone(watched):
    launcher, rank, watch = watched
    start(watch)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(1)
    assert rank.poll() is None
    launcher.kill()
    rank.kill()
    rank.wait(END_S)
    watch.join(END_S)
    assert watch.first_exits == ["0"]
    assert not watch.is_alive()


def test_a_launcher_that_waits_for_its_step_is_given_time_and_stops_at_once(tmp_path, started, monkeypatch):
    """The time in which ranks must start begins when the other steps of the job have left srun the memory."""
    monkeypatch.setattr(watchdog, "MIN_START_TIMEOUT_S", 0.2)
    launcher, looks = started(), []
    watch = watchdog_of(tmp_path, launcher, 0.2)
    watch.waits_for_step = lambda: not looks.append(time.monotonic())
    watch.start()
    wait("the time in which a rank must start is over", lambda: len(looks) > 2 and looks[-1] - looks[0] > 0.5)
    assert launcher.poll() is None
    assert not watch.start_timed_out
    watch._signals.first = "SIGTERM"  # is not held back for ranks that have not started
    assert launcher.wait(END_S) == -signal.SIGUSR1
    watch.join(END_S)


def test_a_launcher_whose_ranks_do_not_start_is_ended(tmp_path, started, monkeypatch):
    monkeypatch.setattr(watchdog, "MIN_START_TIMEOUT_S", 0.2)
    launcher = started()
    watch = watchdog_of(tmp_path, launcher, 0.2)
    watch.start()
    assert launcher.wait(END_S) == -signal.SIGTERM
    watch.join(END_S)
    assert watch.start_timed_out
