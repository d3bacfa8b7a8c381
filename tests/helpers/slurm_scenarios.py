"""Scenarios of interrupted trainings on a real Slurm; each scenario ends when Snakemake ends."""

import signal
import subprocess
from contextlib import suppress

import psutil

from helpers.slurm_cluster import kill_controller, kill_node, kill_slurmd, start_controller, start_node
from helpers.slurm_runs import Submitted, start

URGENT = ("sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true")


def time_limit(run: Submitted) -> None:
    """A job with a time limit of three minutes saves and is requeued.

    With such a short limit the training reserves half of it for saving, unless Slurm sends a warning earlier.
    """
    process = run.start()
    with run.held():
        run.slurm.wait("it is time to save", lambda: run.age > 105, seconds=140)
    run.finish(process)
    assert run.reasons == ["time limit", "finished"]
    assert len(set(run.jobs)) == 1, "the job asks to be requeued, and keeps its number"
    assert run.retries == 0


def snakemake_is_killed(run: Submitted) -> None:
    """After Snakemake is killed, the job of a new Snakemake waits for the old job, which still trains."""
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
    """After scancel the retries of Snakemake are refused until the user ends Snakemake and starts it again."""
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
    """Send SIGINT until Snakemake ends: it may ignore a signal that arrives while it submits a job."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
            break
    assert process.returncode, "Snakemake does not end"


def give_way(run: Submitted) -> None:
    """Submit an urgent job that preempts the training, and wait until the training has finished."""
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
    """Every job without a requeue is resubmitted by Snakemake.

    Slurm 22.05 may treat a job in its grace time as one past its time limit and not requeue it.
    """
    give_way(run)
    assert run.retries == len(set(run.jobs)) - 1


def node_failure(run: Submitted) -> None:
    """The training survives two node failures.

    First a slurmd dies while its processes are suspended, and they continue later. Then a node dies with all processes.
    """
    process = run.start()
    with run.held(launcher=True):
        lost, earlier, before = run.batch_host, run.launcher, run.epochs_done
        kill_slurmd(run.slurm, lost)
        # SlurmdTimeout is the minimum; delays of three to four times SlurmdTimeout were observed.
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
    """The training runs once although slurmctld is killed and restarted.

    slurmctld saves changes after five seconds. If it is killed earlier, it starts the running job a second time.
    """
    process = run.start()
    with run.held():
        run.slurm.wait("the controller has saved that the job runs", lambda: run.age > 12)
        kill_controller(run.slurm)
    run.slurm.wait("the training is over", lambda: run.epochs_done == run.epochs)
    start_controller(run.slurm)
    run.finish(process)
    assert run.reasons == ["finished"]
    assert run.retries == 0
