"""Scenarios of interrupted trainings on a real Slurm; each scenario ends when Snakemake ends."""

import psutil

from helpers.slurm_cluster import (
    Slurm,
    kill_controller,
    kill_node,
    kill_slurmd,
    start_controller,
    start_node,
)
from helpers.slurm_runs import Submitted, start

URGENT = ("sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true")


def urgent(slurm: Slurm) -> tuple[str, ...]:
    """Return the command that submits an urgent job, on any cluster."""
    return ("sbatch", f"--partition={slurm.options.high}", *URGENT[2:])


def time_limit(run: Submitted) -> None:
    """A job with a time limit of three minutes saves and is requeued.

    With such a short limit the training reserves half of it for saving, unless Slurm sends a warning earlier.
    """
    process = run.start()
    with run.held():
        run.slurm.wait("it is time to save", lambda: run.age > 105)
    run.finish(process)
    # On a busy machine, the training may need more than one further job of three minutes.
    *before, last = run.reasons
    assert (set(before), last) == ({"time limit"}, "finished")
    assert len(set(run.jobs)) == 1, "the job asks to be requeued, and keeps its number"
    assert run.retries == 0


def snakemake_is_killed(run: Submitted) -> None:
    """After Snakemake is killed, a new Snakemake watches the job that still trains."""
    first = run.start()
    with run.held():
        first.kill()
        first.wait()
        job = run.job
        assert start(run.slurm, run.checkout, "--unlock").wait(240) == 0
        second = run.start()
        run.slurm.wait("the job is found", lambda: f"nnlo: job {job} (train" in run.terminal)
    run.finish(second)
    assert run.reasons == ["finished"]
    assert run.jobs == [job]


def scancel(run: Submitted) -> None:
    """After scancel the job is not submitted again until the user starts Snakemake again."""
    process = run.start()
    with run.held() as ranks:
        run.slurm.run("scancel", run.job)
        run.wait_for_signal(ranks)
    run.slurm.wait("Snakemake gives up", lambda: process.poll() is not None)
    assert process.returncode == 1
    assert "canceled; run the same command again to resume" in run.terminal
    assert (run.reasons, run.retries) == (["canceled"], 0)
    run.finish(run.start())
    assert run.reasons == ["canceled", "finished"]


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
    """The job requeues itself in its grace time, and keeps its number."""
    give_way(run)
    assert len(set(run.jobs)) == 1
    assert run.retries == 0
    log = run.log.read_text()
    assert f"job {run.job} is queued again" in log
    assert "attempt 1 ended" in log, "the log has the output of both attempts"


def node_failure(run: Submitted) -> None:
    """The training survives two node failures.

    First a slurmd dies while its processes are suspended, and they continue later. Then a node dies with all processes.
    """
    process = run.start()
    with run.held(launcher=True):
        lost, earlier, before = run.batch_host, run.launcher, run.epochs_done
        kill_slurmd(run.slurm, lost)
        # SlurmdTimeout is the minimum; delays of three to four times SlurmdTimeout were observed.
        run.slurm.wait("the node is down", lambda: not run.is_running)
        run.slurm.wait("the next attempt trains", lambda: run.epochs_done > before)
    with run.held(epochs=before + 2):
        start_node(run.slurm, lost)
        dead = run.batch_host
        assert dead != lost
        kill_node(run.slurm, dead)
        run.slurm.wait("the node is down", lambda: not run.is_running)
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
