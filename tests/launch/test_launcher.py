"""Launcher: exclusive in its run folder, exits together with its ranks, records every attempt with its exit reason."""

import json
import mmap
import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.repository_copy import REPOSITORY, environment
from helpers.store_folder import store_folder
from helpers.training_process import processes_of, under_way, wait
from helpers.training_process import started as training

from nnlo_lib.launch.shm_cleanup import SharedMemoryCleanup
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.lease_owner import LeaseOwner

LONG = {"train": {"epochs": 400}}
SIMULATED = {"parallel": {"transport": "simulated"}}
MODEL = "import torch\n\ndef build(shape, classes):\n    return Net(shape, classes)\n\n"
FAILING = """
class Net(torch.nn.Linear):
    calls = 0  # the checks before the start train on one batch

    def __init__(self, shape, classes):
        super().__init__(shape[0] * shape[1] * shape[2], classes)

    def forward(self, images):
        self.calls += self.training
        if self.calls > 1:
            raise {error}
        return super().forward(images.flatten(1))
"""


def reasons(run):
    return [attempt.reason for attempt in read_attempts(run.job / "state")]


def failing(folder, error, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.py").write_text(MODEL + FAILING.format(error=error))
    return training(folder, model={"name": "net.py:build", "args": {}}, **SIMULATED | changes)


def as_snakemake(run, *options, **variables):
    """Run the command of the rule `train` for a prepared run; return its exit status and its stderr.

    Args:
        run: run that `nnlo run` has prepared.
        *options: additional options of the command.
        **variables: environment variables.
    """
    command = [
        sys.executable, REPOSITORY / "scripts/train.py", "--config", run.job.parent / "config.json",
        "--manifest", store_folder() / "manifest.json", "--folder", run.job.relative_to(run.folder), "--seed", "0",
        *options,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=run.folder,
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@contextmanager
def on_way(run):
    """Start a long training and wait until its ranks train."""
    with under_way(run, 1) as process:
        assert process.poll() is None, process.communicate()[0]
        yield process


def nothing_is_left(folder):
    wait("no process is left", lambda: not processes_of(folder))


@pytest.mark.slow
def test_a_second_launcher_is_refused_and_the_first_goes_on(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as first:
        said = run.finish(expect=2).splitlines()[-1]
        assert f"is being written by process {first.pid} on " in said
        assert f"kill {first.pid}" in said
        first.send_signal(signal.SIGUSR2)  # this signal would end mpiexec
        assert first.wait(100) == 75
    assert reasons(run) == ["preempted"]
    assert read_attempts(run.job / "state")[0].saved >= 41
    assert not (run.job / "state/lease.json").exists()
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_after_a_launcher_was_killed_the_same_command_goes_on_at_once(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as process:
        process.kill()
        process.wait(10)
    training(tmp_path, train={"epochs": 410})
    with on_way(run) as process:
        wait("it has resumed", lambda: "resumed at" in (run.job / "state/log.txt").read_text())
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=100)
    assert "without releasing it" in said
    first, second = read_attempts(run.job / "state")
    assert (first.reason, second.reason) == ("killed", "preempted")
    assert first.reached >= 41
    assert second.start == first.saved
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_a_launcher_that_was_away_and_succeeded_ends_its_ranks(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as process:
        process.send_signal(signal.SIGSTOP)
        other = replace(LeaseOwner.for_this_process(), host="elsewhere")
        other.write(run.job / "state/lease.json")
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "another nnlo process took it over" in said.splitlines()[-1]
    assert LeaseOwner.parse((run.job / "state/lease.json").read_bytes()) == other
    assert reasons(run) == []
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_a_folder_that_vanishes_ends_the_run(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as process:
        run.job.rename(tmp_path / "elsewhere")
        said, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "the folder is missing" in said.splitlines()[-1]
    nothing_is_left(tmp_path)


@pytest.mark.processes
def test_a_killed_rank(tmp_path):
    run = training(tmp_path, **LONG)
    with on_way(run) as process:
        os.kill(run.pid(1), signal.SIGKILL)
        assert process.wait(100) == 1
    assert processes_of(tmp_path) == []
    attempt = read_attempts(run.job / "state")[0]
    assert attempt.reason in ("killed", "peer lost")
    assert re.search(r"rank [01] \(process \d+ on ", attempt.error), (
        "either: MPICH ends the other in the same instant"
    )
    assert attempt.reached >= 41


@pytest.mark.slow
def test_a_signal_before_the_ranks_have_started_is_not_lost(tmp_path):
    run = training(tmp_path, **LONG)
    process = run.start()
    wait("the launcher is there", (run.job / "state/lease.json").exists)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 75, said
    assert reasons(run) == ["preempted"]
    nothing_is_left(tmp_path)


@pytest.mark.slow
def test_what_would_fail_again_is_not_tried_again_but_for_a_person(tmp_path):
    run = failing(tmp_path, "ArithmeticError('the real one')")
    run.finish(expect=2)
    status, said = as_snakemake(run, "--attempt", "2")
    assert (status, reasons(run)) == (2, ["bad input"])
    assert "not retried" in said
    assert "ArithmeticError: the real one" in said
    failing(tmp_path, "FloatingPointError('another one')")
    status, said = as_snakemake(run, "--attempt", "1")
    assert (status, reasons(run)) == (2, ["bad input", "bad input"])
    assert "FloatingPointError: another one" in said


@pytest.mark.processes
def test_the_time_limit_and_a_scheduler_that_does_not_requeue(tmp_path):
    run = training(tmp_path, train={"optimizer": {"lr": 1e30}}, **SIMULATED)
    run.finish(expect=2)
    path = run.job.parent / "config.json"
    config = json.loads(path.read_text())
    config["run"]["train"] |= {"epochs": 1000, "optimizer": {"name": "sgd", "lr": 0.02}}
    path.write_text(json.dumps(config))
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho not allowed here >&2; exit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    status, said = as_snakemake(
        run, "--minutes", "0.05", "--on-preemption", "requeue",
        SLURM_JOB_ID="7", PATH=f"{tmp_path}:{os.environ['PATH']}",
    )  # fmt: skip
    assert (status, reasons(run)) == (75, ["diverged", "time limit"])
    assert "job 7 could not be requeued (not allowed here)" in said
    assert read_attempts(run.job / "state")[1].saved > 0


def test_shared_memory_is_removed_unless_somebody_uses_it():
    segments = SharedMemoryCleanup()
    unused, used = (Path(f"/dev/shm/mpich_shm_{uuid.uuid4().hex}") for _ in range(2))
    for path in (unused, used):
        path.write_bytes(bytes(4096))
        os.utime(path, (0, 0))
    try:
        with used.open("rb+") as file, mmap.mmap(file.fileno(), 4096):
            segments.remove_unused()
        assert used.exists()
        assert not unused.exists()
    finally:
        used.unlink()
