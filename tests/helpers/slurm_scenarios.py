"""What may happen to a training on a real Slurm; each story ends when Snakemake has."""

import signal
import subprocess
from contextlib import suppress

import psutil

from helpers.slurm_cluster import kill_controller, kill_node, kill_slurmd, start_controller, start_node
from helpers.slurm_runs import Submitted, start

URGENT = ("sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true")


def time_limit(run: Submitted) -> None:
    """Three minutes are too short; half of so short a limit is kept for saving, unless Slurm warns before."""
    process = run.start()
    with run.held():
        run.slurm.wait("it is time to save", lambda: run.age > 105, seconds=140)
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
        run.slurm.wait("the new job waits", lambda: "waiting until it is released" in run.said, seconds=240)
        assert run.job == job
    run.finish(second)
    assert run.reasons == ["finished", "finished"]
    assert run.jobs[0] == job != run.jobs[1]
    assert run.attempts[1]["from"] == run.attempts[0]["reached"], "nothing was trained again"


def scancel(run: Submitted) -> None:
    """Snakemake tries in vain until a person ends it, for nobody is to undo what a person did."""
    process = run.start()
    with run.held() as ranks:
        run.slurm.run("scancel", run.job)
        run.wait_for_signal(ranks)
    run.slurm.wait(
        "Snakemake tries again", lambda: "was canceled and is not retried" in run.said, seconds=240
    )
    interrupt(process)
    assert run.reasons == ["preempted"]
    run.finish(run.start())
    assert run.reasons == ["preempted", "finished"]


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Press Ctrl-C until Snakemake ends: it may not hear one that comes while it submits a job."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
            break
    assert process.returncode, "Snakemake does not end"


def give_way(run: Submitted) -> None:
    """Let an urgent job take the nodes while the training goes on."""
    process = run.start()
    with run.held() as ranks:
        run.slurm.run(*URGENT)
        run.slurm.wait("the job gives way", lambda: run.gives_way)
        run.wait_for_signal(ranks)
    run.finish(process)
    *before, last = run.reasons_of_training
    assert set(before) == {"preempted"}
    assert last == "finished"


def scontrol_requeue(run: Submitted) -> None:
    process = run.start()
    with run.held() as ranks:
        run.slurm.run("scontrol", "requeue", run.job)
        run.wait_for_signal(ranks)
    run.finish(process)
    assert run.reasons == ["preempted", "finished"]
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


def preemption(run: Submitted) -> None:
    give_way(run)
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


def preemption_with_grace_time(run: Submitted) -> None:
    """Slurm 22.05 may take a job that waits out its grace time for one whose time is up, and not requeue it."""
    give_way(run)
    assert run.retries == len(set(run.jobs)) - 1


def node_failure(run: Submitted) -> None:
    """A slurmd dies while all that it started hangs, and wakes up later; then a node dies with all that runs on it."""
    process = run.start()
    with run.held(launcher=True):
        lost, earlier, before = run.batch_host, run.launcher, run.epochs_done
        kill_slurmd(run.slurm, lost)
        # SlurmdTimeout says after how long at the earliest; three or four times that was seen.
        run.slurm.wait("the node is down", lambda: not run.is_running, seconds=90)
        run.slurm.wait("the next attempt trains", lambda: run.epochs_done > before, seconds=240)
    with run.held(epochs=before + 2):
        start_node(run.slurm, lost)
        dead = run.batch_host
        assert dead != lost
        kill_node(run.slurm, dead)
        run.slurm.wait("the node is down", lambda: not run.is_running, seconds=90)
    run.finish(process)
    start_node(run.slurm, dead)
    assert not psutil.pid_exists(earlier), "shut out of the folder, it ends itself"
    *failures, last = run.reasons
    assert set(failures) == {"node failure"}, (
        "more than two: on a slow machine a slurmd is silent for too long"
    )
    assert last == "finished"
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


def slurmctld_restarts(run: Submitted) -> None:
    """A controller saves what changed after five seconds; killed before, it starts a job that runs a second time."""
    process = run.start()
    with run.held():
        run.slurm.wait("the controller has saved that the job runs", lambda: run.age > 12)
        kill_controller(run.slurm)
    run.slurm.wait("the training is over", lambda: run.epochs_done == run.epochs)
    start_controller(run.slurm)
    run.finish(process)
    assert run.reasons == ["finished"]
    assert run.retries == 0
