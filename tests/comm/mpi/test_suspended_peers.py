"""The peer timeout does not count the time in which a scheduler suspends a host; one stopped rank counts as lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from helpers import run_on_ranks as ranks
from helpers.repository_copy import environment
from helpers.training_process import wait

from nnlo_lib.comm.mpi.communicator import MPICommunicator

TIMEOUT = 3.0  # peer timeout in seconds
LONG_TIMEOUT = 8.0  # in which a busy test process sends its signal
STOPPED = 5.0


def add(_: MPICommunicator, folder: str, timeout: float) -> list[float]:
    """Run an all-reduce with a short timeout; return the sum and the waiting time in seconds.

    Rank 1 waits for the file `go` before it joins.
    """
    comm = MPICommunicator(timeout=timeout)
    announce(comm.rank, Path(folder))
    if comm.rank == 1:
        wait("go", (Path(folder) / "go").exists)
    vector = torch.tensor([comm.rank + 1.0])
    comm.allreduce(vector)
    return [vector.item(), comm.seconds["wait"]]


def relay(_: MPICommunicator, folder: str, timeout: float) -> list[float]:
    """Return the received value and the waiting time in seconds for a chain of waiting ranks.

    Rank 0 waits for rank 1 in a split communicator, rank 1 for rank 2 in the world, and rank 2 for the file `go`.
    """
    world = MPICommunicator(timeout=timeout)
    part = world.split(world.rank // 2)
    announce(world.rank, Path(folder))
    vector = torch.tensor([7.0 if world.rank == 2 else 0.0])
    if world.rank == 2:
        wait("go", (Path(folder) / "go").exists)
        world.send(vector, 1)
    elif world.rank == 1:
        world.receive(vector, 2)
        part.send(vector, 0)
    else:
        part.receive(vector, 1)
    return [vector.item(), world.seconds["wait"]]


def announce(rank: int, folder: Path) -> None:
    (folder / "part").with_suffix(f".{rank}").write_text(str(os.getpid()))
    (folder / "part").with_suffix(f".{rank}").rename(folder / str(rank))


@contextmanager
def started(
    program: str, size: int, folder: Path, timeout: float = TIMEOUT
) -> Iterator["subprocess.Popen[str]"]:
    """Start the ranks and wait until all have written their process ids.

    Args:
        program: function of this module.
        size: number of ranks.
        folder: folder of the process ids.
        timeout: peer timeout in seconds.
    """
    command = [
        Path(sys.executable).with_name("mpiexec"), "-n", str(size), sys.executable, ranks.__file__,
        "comm.mpi.test_suspended_peers", program, f'["{folder}", {timeout}]',
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env=environment() | {"PYTHONPATH": ":".join(sys.path), ranks.ERROR_FOLDER: str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        files = [folder / str(rank) for rank in range(size)]
        wait("all ranks", lambda: all(path.exists() for path in files) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.wait(100)


def send(number: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, number)


def naps(pid: int) -> int:
    """Return the number of voluntary context switches of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def wait_for_naps(process: "subprocess.Popen[str]", pid: int) -> None:
    """Wait until the poll loop of a rank has slept 50 more times."""
    before = naps(pid)
    wait("some naps", lambda: process.poll() is not None or naps(pid) > before + 50)
    assert process.poll() is None, process.communicate()[1]


def suspend(process: "subprocess.Popen[str]", folder: Path, stopped: tuple[int, ...]) -> None:
    """Suspend ranks for longer than the timeout, resume them and create `go` when rank 0 polls again.

    Args:
        process: process of mpiexec.
        folder: folder with the process ids.
        stopped: ranks to suspend.
    """
    first, pids = int((folder / "0").read_text()), [int((folder / str(rank)).read_text()) for rank in stopped]
    wait_for_naps(process, first)
    send(signal.SIGSTOP, pids)
    end = time.monotonic() + STOPPED
    wait("the stop", lambda: time.monotonic() > end or process.poll() is not None)
    send(signal.SIGCONT, pids)
    wait_for_naps(process, first)
    (folder / "go").touch()


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [(0,), (0, 1)], ids=["the waiting rank", "all ranks"])
def test_a_suspension_longer_than_the_timeout_is_waited_out(stopped: tuple[int, ...], tmp_path: Path) -> None:
    with started("add", 2, tmp_path) as process:
        suspend(process, tmp_path, stopped)
        said, complaints = process.communicate(timeout=100)
    assert process.returncode == 0, complaints
    (first, waited), (second, _) = json.loads(said.splitlines()[-1])
    assert (first, second) == (3.0, 3.0)
    assert waited > STOPPED - 1


@pytest.mark.processes
def test_a_stopped_peer_is_reported_at_once_and_lost_after_the_timeout(tmp_path: Path) -> None:
    with started("add", 2, tmp_path, LONG_TIMEOUT) as process:
        stopped = int((tmp_path / "1").read_text())
        send(signal.SIGSTOP, [stopped])
        _, complaints = process.communicate(timeout=100)
    assert process.returncode
    name = rf"rank 1 \(process {stopped} on \S+, stopped by a signal\)"
    assert re.search(
        rf"warning: rank 0 has waited \d s for an all-reduce: no response from {name}", complaints
    )
    error = (tmp_path / "error-0").read_text()
    assert re.search(rf"rank 0 waited for an all-reduce, but {name} did not respond for 8 s", error)


@pytest.mark.processes
def test_a_stop_shorter_than_the_timeout_is_reported_and_waited_out(tmp_path: Path) -> None:
    with started("add", 2, tmp_path, timeout=100) as process:
        stopped = int((tmp_path / "1").read_text())
        send(signal.SIGSTOP, [stopped])
        (tmp_path / "go").touch()
        assert process.stderr is not None
        warning = process.stderr.readline()
        send(signal.SIGCONT, [stopped])
        said, complaints = process.communicate(timeout=100)
    assert process.returncode == 0, complaints
    assert "after 100 s (parallel.peer_timeout), the ranks end" in warning
    assert "the wait for an all-reduce has ended" in complaints
    assert [value for value, _ in json.loads(said.splitlines()[-1])] == [3.0, 3.0]


@pytest.mark.processes
def test_a_stopped_rank_of_another_part_is_named(tmp_path: Path) -> None:
    with started("relay", 3, tmp_path, LONG_TIMEOUT) as process:
        send(signal.SIGSTOP, [int((tmp_path / "2").read_text())])
        process.communicate(timeout=100)
    assert process.returncode
    errors = "".join(path.read_text() for path in tmp_path.glob("error-[01]"))
    assert re.search(r"rank [01] waited for .*, but rank 2 \(process \d+ on \S+, stopped by a signal", errors)


@pytest.mark.processes
def test_a_peer_that_is_alive_but_silent_is_named(tmp_path: Path) -> None:
    with started("add", 2, tmp_path) as process:
        process.communicate(timeout=100)
    assert process.returncode
    pid = (tmp_path / "1").read_text()
    assert re.search(
        rf"rank 0 waited for an all-reduce, but rank 1 \(process {pid} on \S+, \w+\) did not respond for \d+ s",
        (tmp_path / "error-0").read_text(),
    )
