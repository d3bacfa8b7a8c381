"""Whatever happens to a training on a real Slurm, it ends as the same training that nothing disturbed."""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from checkout import Checkout, copy_checkout, environment
from cluster import Slurm, cluster, kill_controller, kill_node, kill_slurmd, start_controller, start_node
from runs import NNLO, Submitted, edit, start, undisturbed

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]

EPOCHS = 40
STEPS = 41 * EPOCHS
BASE = {
    "seeds": [1],
    "runs": {"allreduce": {"parallel": {"ranks": 2}}},
    "train": {"epochs": EPOCHS, "batch_size": 16},
    "checkpoint": {"every": "1 epoch"},
}
RESOURCES = {"nodes": 2, "mem_mb": 1000, "runtime": 10}
URGENT = ("sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true")


def time_limit(run: Submitted) -> None:
    """Three minutes are too short; half of so short a limit is kept for saving."""
    process = run.start()
    with run.held():
        run.slurm.wait("half of the time is over", lambda: run.age > 92, seconds=120)
    run.finish(process)
    assert run.reasons == ["time limit", "finished"]
    assert len(set(run.jobs)) == 1, "the job asks to be requeued, and keeps its number"
    assert run.retries == 0


def snakemake_is_killed(run: Submitted) -> None:
    """A new job, of a new Snakemake, waits for the one that still trains."""
    first = run.start()
    with run.held():
        first.kill()
        first.wait()
        job = run.job
        assert start(run.slurm, run.checkout, "--unlock").wait(60) == 0
        second = run.start()
        run.slurm.wait("the new job waits", lambda: "waiting for its end" in run.said, seconds=240)
        assert run.job == job
    run.finish(second)
    assert run.reasons == ["finished", "finished"]
    assert run.jobs[0] == job != run.jobs[1]
    assert run.attempts[1]["from"] == STEPS, "nothing was trained again"


def scancel(run: Submitted) -> None:
    """Snakemake tries in vain until a person ends it, for nobody is to undo what a person did."""
    process = run.start()
    with run.held():
        run.slurm.run("scancel", run.job)
    run.slurm.wait("Snakemake tries again", lambda: "was cancelled: not tried again" in run.said, seconds=240)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert run.reasons == ["preempted"]
    run.finish(run.start())
    assert run.reasons == ["preempted", "finished"]


def scontrol_requeue(run: Submitted) -> None:
    process = run.start()
    with run.held():
        run.slurm.run("scontrol", "requeue", run.job)
    run.finish(process)
    assert run.reasons == ["preempted", "finished"]
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


def preemption(run: Submitted) -> None:
    process = run.start()
    with run.held():
        run.slurm.run(*URGENT)
        run.slurm.wait("the job gave way", lambda: not run.is_running)
    run.finish(process)
    assert set(run.reasons[:-1]) == {"preempted"}
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


def preemption_with_grace_time(run: Submitted) -> None:
    """Slurm 22.05 takes a job that waits in its grace time for one whose time is up, and requeues it or not."""
    process = run.start()
    with run.held():
        run.slurm.run(*URGENT)
        run.slurm.wait("the job gave way", lambda: run.was_told)
    run.finish(process)
    assert set(run.reasons[:-1]) == {"preempted"}


def node_failure(run: Submitted) -> None:
    """First a slurmd dies, and what it started lives on; then a node with all that runs on it."""
    process = run.start()
    with run.held():
        lost = run.batch_host
        kill_slurmd(run.slurm, lost)
        run.slurm.wait("the node is down", lambda: not run.is_running, seconds=90)
    run.slurm.wait("the next attempt trains", lambda: len(run.attempts) == 1 and run.trains, seconds=240)
    start_node(run.slurm, lost)
    with run.held(epochs=run.epochs_done + 2):
        dead = run.batch_host
        assert dead != lost
        kill_node(run.slurm, dead)
        run.slurm.wait("the node is down", lambda: not run.is_running, seconds=90)
    run.finish(process)
    start_node(run.slurm, dead)
    run.slurm.wait("the cluster is whole", run.slurm.idle)
    assert run.reasons == ["node failure", "node failure", "finished"]
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


def slurmctld_restarts(run: Submitted) -> None:
    process = run.start()
    with run.held():
        kill_controller(run.slurm)
    run.slurm.wait("the training is over", lambda: run.epochs_done == EPOCHS)
    start_controller(run.slurm)
    run.finish(process)
    assert run.reasons == ["finished"]
    assert run.retries == 0
