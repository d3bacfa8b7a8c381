"""The peer timeout does not count the time in which a scheduler suspends a host; one stopped rank counts as lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.repository_copy import environment
from helpers.run_on_ranks import ERROR_FOLDER, world_command
from helpers.training_process import wait

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.mpi import progress_engine
from nnlo_lib.comm.mpi.communicator import MPICommunicator
from nnlo_lib.core.process import ProcessState

TIMEOUT = 8.0  # seconds
HOST = progress_engine.socket.gethostname()


class Machine:
    """A virtual clock and the processes of ranks 0 to 3, of which rank 0 waits; rank 3 runs on another host.

    Attributes:
        states: letter of a rank's process as a function of the time; S if not given.
        suspended: start and end of the time in which rank 0 does not run.
        log: warnings and information.
    """

    def __init__(self, monkeypatch):
        self.now, self.states, self.suspended, self.log = 0.0, {}, (0.0, 0.0), []
        clock = SimpleNamespace(perf_counter=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(progress_engine, "time", clock)
        monkeypatch.setattr(
            progress_engine, "logger", SimpleNamespace(warning=self.log.append, info=self.log.append)
        )
        monkeypatch.setattr(progress_engine, "ProcessState", SimpleNamespace(of=self._state_of))

    def _sleep(self, seconds):
        self.now += seconds
        if self.suspended[0] <= self.now < self.suspended[1]:
            self.now = self.suspended[1]

    def _state_of(self, pid):
        return ProcessState(self.states.get(pid - 100, lambda now: "S")(self.now))

    def wait(self, until=float("inf"), awaited=None):
        """Wait for an all-reduce, which ends at the time `until`."""
        processes = [
            progress_engine.RankProcess(rank, HOST if rank < 3 else "elsewhere", 100 + rank)
            for rank in range(4)
        ]
        monitor = progress_engine.PeerMonitor(0, processes, TIMEOUT, lambda: "")
        monitor.wait(lambda: self.now >= until, "an all-reduce", 0.0, awaited)

    def lost(self, awaited=None):
        """Return the error message of a wait that does not end."""
        with pytest.raises(PeerLostError) as error:
            self.wait(awaited=awaited)
        return str(error.value)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_a_suspension_longer_than_the_timeout_does_not_count(machine):
    machine.suspended = (1.0, 1000.0)
    machine.wait(1003.0)
    assert not machine.log


def test_a_stopped_peer_is_reported_at_once_and_lost_after_the_timeout(machine):
    machine.states[1] = lambda now: "T" if now > 2 else "S"
    name = f"rank 1 (process 101 on {HOST}, stopped by a signal)"
    assert machine.lost() == f"rank 0 waited for an all-reduce, but {name} did not respond for 8 s"
    (warning,) = machine.log
    assert re.match(r"rank 0 has waited [23] s for an all-reduce: no response from ", warning)
    assert warning.endswith(f"{name}; after 8 s (parallel.peer_timeout), the ranks end")


def test_a_stop_shorter_than_the_timeout_is_reported_and_waited_out(machine):
    machine.states[1] = lambda now: "T" if 2 < now < 5 else "S"
    machine.wait(6.0)
    assert len(machine.log) == 2
    assert machine.log[1] == "rank 0: the wait for an all-reduce has ended; the training continues"


def test_a_stopped_rank_for_which_the_awaited_rank_waits_is_named(machine):
    machine.states[2] = lambda now: "T"
    assert f"but rank 2 (process 102 on {HOST}, stopped by a signal) did not" in machine.lost(awaited=[1])


def test_a_peer_that_is_alive_but_silent_is_named_after_the_timeout(machine):
    assert f"but rank 1 (process 101 on {HOST}, sleeping) did not respond for 10 s" in machine.lost([1])
    assert "but rank 3 (process 103 on elsewhere) did not respond" in machine.lost([3])


def test_a_dead_peer_is_lost_at_once(machine):
    machine.states[2] = lambda now: "Z"
    assert re.search(r"but rank 2 \(process 102 on \S+\) died$", machine.lost())
    assert machine.now < 1


def two_sums(_, folder):
    """Run two all-reduces with a short timeout; rank 1 joins each one when its file exists."""
    comm, folder, vector = MPICommunicator(timeout=TIMEOUT), Path(folder), torch.ones(1)
    written = folder / f"{comm.rank}.part"
    written.write_text(str(os.getpid()))
    written.rename(folder / str(comm.rank))
    for name in ("first", "second"):
        while comm.rank == 1 and not (folder / name).exists():
            time.sleep(0.01)
        comm.allreduce(vector)
        if comm.rank == 0:
            print(json.dumps([name, *vector.tolist()]), flush=True)


def send(number, pids):
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.real
@pytest.mark.mpi
def test_ranks_outlive_a_suspension_of_their_host_and_lose_a_rank_that_stays_stopped(tmp_path):
    process = subprocess.Popen(
        world_command(two_sums, 2, str(tmp_path)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment() | {"PYTHONPATH": ":".join(sys.path), ERROR_FOLDER: str(tmp_path)},
    )  # fmt: skip
    try:
        files = [tmp_path / str(rank) for rank in range(2)]
        wait("all ranks", lambda: all(path.exists() for path in files) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        pids = [int(path.read_text()) for path in files]
        send(signal.SIGSTOP, pids)
        end = time.monotonic() + TIMEOUT + 2 * progress_engine.PEER_CAUSE_LEAD_S
        wait("a suspension longer than the timeout", lambda: time.monotonic() > end)
        send(signal.SIGCONT, pids)
        (tmp_path / "first").touch()
        assert json.loads(process.stdout.readline()) == ["first", 2.0]
        send(signal.SIGSTOP, pids[1:])
        _, complaints = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode
    name = rf"rank 1 \(process {pids[1]} on \S+, stopped by a signal\)"
    assert re.search(
        rf"warning: rank 0 has waited \d+ s for an all-reduce: no response from {name}", complaints
    )
    error = (tmp_path / "error-0").read_text()
    assert re.search(rf"rank 0 waited for an all-reduce, but {name} did not respond for 8 s", error)
