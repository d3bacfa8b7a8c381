"""Launcher: exclusive in its run folder, exits with its ranks, starts ranks again that did not start, explains what prevents it."""

import mmap
import os
import shutil
import signal
import uuid
from collections import namedtuple
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from helpers.nnlo_command import nnlo
from helpers.training_process import processes_of, under_way, wait
from helpers.training_process import started as training

from nnlo_lib.config import Run
from nnlo_lib.launch.launcher import SharedMemoryCleanup, launch_ranks, shared_memory_problem
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.lease import LeaseOwner
from nnlo_lib.train.task import Task

LONG = {"train": {"epochs": 400}}
END_S = 300  # for the end of ranks and launcher on a busy machine


def reasons(run):
    return [attempt.reason for attempt in read_attempts(run.job / "state")]


@contextmanager
def on_way(run):
    """Start a long training and wait until its ranks train."""
    with under_way(run, 1) as process:
        assert process.poll() is None, process.communicate()[0]
        yield process


def nothing_is_left(folder):
    wait("no process is left", lambda: not processes_of(folder))


@pytest.mark.real
@pytest.mark.mpi
def test_a_second_launcher_is_refused_and_the_first_goes_on(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as first:
        refusal = run.finish(expect=2).splitlines()[-1]
        assert f"is being written by process {first.pid} on " in refusal
        assert f"kill {first.pid}" in refusal
        first.send_signal(signal.SIGUSR2)  # this signal would end mpiexec
        assert first.wait(END_S) == 75
    assert reasons(run) == ["preempted"]
    assert read_attempts(run.job / "state")[0].saved >= 41
    assert not (run.job / "state/lease.json").exists()
    nothing_is_left(tmp_path)


@pytest.mark.real
@pytest.mark.mpi
def test_after_a_launcher_was_killed_the_same_command_resumes_at_once(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as process:
        process.kill()
        process.wait(END_S)
    training(tmp_path, train={"epochs": 410})
    with on_way(run) as process:
        wait("the training has resumed", lambda: "resumed at" in (run.job / "state/log.txt").read_text())
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=END_S)
    assert "without releasing it" in output
    first, second = read_attempts(run.job / "state")
    assert (first.reason, second.reason) == ("killed", "preempted")
    assert first.reached >= 41
    assert second.start == first.saved
    nothing_is_left(tmp_path)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "first_try",
    [
        pytest.param("exit 15", marks=pytest.mark.real, id="fails"),
        # MPI waits forever for a rank that exits before it is connected.
        pytest.param(
            'shift 2; exec mpiexec -n 1 false : -n 1 "$@"', marks=pytest.mark.exhaustive, id="hangs"
        ),
    ],
)
def test_ranks_that_do_not_start_are_started_again(tmp_path, first_try):
    run = training(tmp_path, train={"epochs": 1}, parallel={"peer_timeout": 60})
    (launcher := tmp_path / "launcher").touch(0o755)
    again = '[ "$(grep -c try tries)" -gt 1 ] && exec mpiexec "$@"'
    launcher.write_text(f"#!/bin/sh\necho try >> tries\n{again}\n{first_try}\n")
    assert run.finish("--launcher", str(launcher)).count("restarting all ranks") == 1
    assert (tmp_path / "tries").read_text().count("try") == 2
    assert reasons(run) == ["killed", "finished"]
    assert processes_of(tmp_path) == []


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_launcher_that_was_stopped_and_succeeded_by_another_ends_its_ranks(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as process:
        process.send_signal(signal.SIGSTOP)
        other = replace(LeaseOwner.for_this_process(), host="elsewhere")
        other.write(run.job / "state/lease.json")
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=END_S)
    assert process.returncode == 1
    assert "another nnlo process took it over" in output.splitlines()[-1]
    assert LeaseOwner.parse((run.job / "state/lease.json").read_bytes()) == other
    assert reasons(run) == []
    nothing_is_left(tmp_path)


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_signal_while_the_ranks_start_is_not_lost(tmp_path):
    run = training(tmp_path, **LONG)
    process = run.start()
    lease = run.job / "state/lease.json"
    wait("the launcher has the lease", lambda: lease.exists() or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=END_S)
    assert process.returncode == 75, output
    assert reasons(run) == ["preempted"]
    nothing_is_left(tmp_path)


SLOW_TO_EXIT = """
import sys, time
import torch
from mpi4py import MPI

RANK = MPI.COMM_WORLD.Get_rank()

class Slow:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def flush(self):
        self.stream.flush()
        if RANK and MPI.Is_finalized():
            time.sleep(1)

sys.stdout = Slow(sys.stdout)

def build(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0] * shape[1] * shape[2], classes))
"""


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_rank_that_exits_later_than_others_is_not_recorded_as_killed(tmp_path):
    (tmp_path / "net.py").write_text(SLOW_TO_EXIT)
    run = training(tmp_path, ranks=3, model={"name": "net.py:build", "args": {}}, **LONG)
    with under_way(run, 2) as process:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=END_S)
    assert process.returncode == 75, output
    assert "stopped and saved" in output
    assert reasons(run) == ["preempted"]


def test_the_log_has_the_error_of_a_missing_launcher(tmp_path):
    run = training(tmp_path)
    done = nnlo("run", "t.yaml", "--launcher", "no-such-launcher", folder=tmp_path)
    assert done.returncode == 2
    (line,) = [line for line in (run.job / "state/log.txt").read_text().splitlines() if "error: " in line]
    assert "cannot start the ranks with 'no-such-launcher'" in line


def test_no_rank_is_started_after_a_signal(tmp_path):
    task = Task("t", "t", Run(), 0, None, 1, tmp_path / "manifest.json", tmp_path)
    task.state.mkdir()
    signals = SimpleNamespace(first="SIGTERM")
    outcome = launch_ranks(task, "no-such-launcher", TimeLimit(None, None), signals, Event())
    assert (outcome.reason, outcome.signal) == ("preempted", "SIGTERM")
    assert "stopped before the ranks started" in outcome.error


def test_shared_memory_is_removed_unless_a_process_uses_it():
    segments = SharedMemoryCleanup()
    paths = [Path(f"/dev/shm/mpich_shm_{uuid.uuid4().hex}") for _ in range(2)]
    for path in paths:
        path.write_bytes(bytes(4096))
    with paths[0].open("rb+") as file, mmap.mmap(file.fileno(), 4096):
        # Old only now: launchers of other tests remove segments, too.
        for path in paths:
            os.utime(path, (0, 0))
        segments.remove_unused()
        assert [path.exists() for path in paths] == [True, False]
    paths[0].unlink()


@pytest.mark.parametrize(
    ("ranks", "free", "words"), [(2, 1, "/dev/shm has 1 MiB"), (4, 5, "has 1 MiB"), (4, 8, ""), (1, 0, "")]
)
def test_shared_memory_that_is_too_small_is_named(monkeypatch, ranks, free, words):
    usage = namedtuple("usage", "total used free")(1 << 20, 0, free << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    run = SimpleNamespace(parallel=SimpleNamespace(ranks=ranks, transport="mpi"))
    problem = shared_memory_problem(SimpleNamespace(run=run))
    assert words in problem
    assert bool(words) == bool(problem)
