"""The peer timeout does not count the time during which a scheduler suspends ranks (MPI ranks under SIGSTOP)."""

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
STOPPED = 5.0


def add(_: MPICommunicator, folder: str) -> list[float]:
    """Run an all-reduce with a short timeout; return the sum and the waiting time in seconds.

    Rank 1 waits for the file `go` before it joins.
    """
    comm = MPICommunicator(timeout=TIMEOUT)
    announce(comm.rank, Path(folder))
    if comm.rank == 1:
        wait("go", (Path(folder) / "go").exists)
    vector = torch.tensor([comm.rank + 1.0])
    comm.allreduce(vector)
    return [vector.item(), comm.seconds["wait"]]


def relay(_: MPICommunicator, folder: str) -> list[float]:
    """Return the received value and the waiting time in seconds for a chain of waiting ranks.

    Rank 0 waits for rank 1 in a split communicator, rank 1 for rank 2 in the world, and rank 2 for the file `go`.
    """
    world = MPICommunicator(timeout=TIMEOUT)
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
def started(program: str, size: int, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start the ranks and wait until all have written their process ids."""
    command = [
        Path(sys.executable).with_name("mpiexec"), "-n", str(size), sys.executable, ranks.__file__,
        "comm.mpi.test_suspended_peers", program, f'["{folder}"]',
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env=environment() | {"PYTHONPATH": ":".join(sys.path), ranks.ERROR_FOLDER: str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait("all ranks", lambda: all((folder / str(rank)).exists() for rank in range(size)))
        yield process
    finally:
        process.kill()
        process.wait(30)


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
@pytest.mark.parametrize("stopped", [(1,), (0,), (0, 1)], ids=["the peer", "the waiting rank", "both"])
def test_a_stop_longer_than_the_timeout_is_waited_out(stopped: tuple[int, ...], tmp_path: Path) -> None:
    with started("add", 2, tmp_path) as process:
        suspend(process, tmp_path, stopped)
        said, complaints = process.communicate(timeout=100)
    assert process.returncode == 0, complaints
    (first, waited), (second, _) = json.loads(said.splitlines()[-1])
    assert (first, second) == (3.0, 3.0)
    assert waited > STOPPED - 1


@pytest.mark.slow
def test_a_peer_is_excused_that_waits_for_a_stopped_rank_of_another_part(tmp_path: Path) -> None:
    with started("relay", 3, tmp_path) as process:
        suspend(process, tmp_path, (2,))
        said, complaints = process.communicate(timeout=100)
    assert process.returncode == 0, complaints
    assert [value for value, _ in json.loads(said.splitlines()[-1])] == [7.0, 7.0, 7.0]


@pytest.mark.processes
def test_a_peer_that_is_alive_but_silent_is_named(tmp_path: Path) -> None:
    with started("add", 2, tmp_path) as process:
        process.communicate(timeout=100)
    assert process.returncode
    pid = (tmp_path / "1").read_text()
    assert re.search(
        rf"rank 0 waited for an all-reduce, but rank 1 \(process {pid} on \S+\) did not respond for \d+ s",
        (tmp_path / "error-0").read_text(),
    )
