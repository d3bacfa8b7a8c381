"""Events on Slurm clusters with various rules after which trainings once never ended, or ended by using up all tries.

Each story ends when Snakemake ends: with the training finished, or with one sentence.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from helpers.slurm_clients import fail_calls, failures_left
from helpers.slurm_cluster import kill_controller, start_controller
from helpers.slurm_runs import SNAKEMAKE, Submitted
from helpers.slurm_scenarios import urgent

FREE_NODES_S = 60  # seconds within which a preempted job with a long grace time leaves its nodes
CONTROLLER_DOWN_S = 75
UPSTREAM_CALLS = 5


def preempted_under_cancel(run: Submitted) -> None:
    """A preempted job that Slurm cancels is submitted again, and no try is counted."""
    with _preempted(run):
        pass
    assert run.retries == 0
    assert_preempted(run)


def preempted_without_requeue(run: Submitted) -> None:
    """A preempted job that Slurm may not requeue, although its cluster requeues others, is submitted again."""
    process = run.start()
    with run.held() as ranks:
        run.slurm.run("scontrol", "update", f"JobId={run.job}", "Requeue=0")
        _preempt(run, ranks)
    run.finish(process)
    assert run.retries == 0
    assert_preempted(run)


def long_grace_time(run: Submitted) -> None:
    """A job with a grace time of 25 minutes frees its nodes as soon as it has saved."""
    with _preempted(run) as number:
        run.slurm.wait(
            "the urgent job has the nodes", lambda: _state(run, number) == "COMPLETED", FREE_NODES_S
        )
    assert run.retries == 0
    assert_preempted(run)


def failed_squeues(run: Submitted) -> None:
    """Snakemake asks again after a look that failed, for which the upstream plugin calls squeue up to five times."""
    process = run.start()
    with run.held():
        fail_calls(run.checkout.folder, "squeue", UPSTREAM_CALLS)
        run.slurm.wait("squeue fails", lambda: failures_left(run.checkout.folder, "squeue") < UPSTREAM_CALLS)
    run.finish(process)
    assert_undisturbed(run)


def sbatch_and_squeue_time_out(run: Submitted) -> None:
    """Submissions and queries that time out are repeated, and no try is counted."""
    for client, times in (("sbatch", 2), ("squeue", 2)):
        fail_calls(run.checkout.folder, client, times)
    run.finish(run.start())
    assert not failures_left(run.checkout.folder, "sbatch")
    assert_undisturbed(run)


def controller_is_down(run: Submitted) -> None:
    """The job ends while slurmctld is down for longer than all queries of one look."""
    process = run.start()
    with run.held():
        # slurmctld saves changes after five seconds, and would start the job twice without this record.
        run.slurm.wait("the controller has saved that the job runs", lambda: run.age > 12)
        kill_controller(run.slurm)
        end = run.age + CONTROLLER_DOWN_S
        run.slurm.wait("slurmctld was down for a while", lambda: run.age > end)
    run.slurm.wait("the training is over", lambda: run.epochs_done == run.epochs)
    start_controller(run.slurm)
    run.finish(process)
    assert_undisturbed(run)


def forgotten_between_two_looks(run: Submitted) -> None:
    """The job ends, and Slurm forgets it, while Snakemake does not look."""
    process = run.start()
    with run.held():
        job = run.job
        process.send_signal(signal.SIGSTOP)
    try:
        run.slurm.wait(
            "Slurm forgets the job", lambda: not run.slurm.succeeds("scontrol", "show", "job", job)
        )
    finally:
        process.send_signal(signal.SIGCONT)
    run.finish(process)
    assert_undisturbed(run)


def submit_limit(run: Submitted) -> None:
    """Four trainings of a user who may have two jobs in the queue all finish, and no try is counted."""
    run.finish(run.start(all_seeds=True, SBATCH_ACCOUNT="limited"))
    for seed in range(1, 5):
        assert_undisturbed(replace(run, seed=seed))


def pending_for_ever(run: Submitted) -> None:
    """The terminal names the job, the reason and the remedy once; the user applies the remedy."""
    short = run.slurm.options.short
    run.slurm.run("scontrol", "update", f"PartitionName={short}", "State=DOWN")
    process = run.start(SBATCH_PARTITION=short)
    run.slurm.wait("the job is submitted", lambda: bool(run.queued))
    (job,) = run.queued
    run.slurm.run("scontrol", "update", f"PartitionName={short}", "State=UP", "MaxTime=5")
    run.slurm.wait("the terminal names the reason", lambda: "PartitionTimeLimit" in run.terminal)
    (line,) = [line for line in run.terminal.splitlines() if "PartitionTimeLimit" in line]
    assert all(word in line for word in (job, "train allreduce", "resources.runtime")), line
    run.slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=5")
    run.finish(process)
    assert_undisturbed(run)


def memory_limit(run: Submitted) -> None:
    """A training that Slurm kills for its memory gets more memory."""
    run.finish(run.start())
    *before, last = run.reasons
    assert set(before) == {"out of memory"}
    assert last == "finished"
    assert 1 <= len(before) <= 3, "each try asks for half more memory"


def canceled(run: Submitted) -> None:
    """A training that a user cancels stays canceled; the other finishes, and the same command resumes."""
    process = run.start(all_seeds=True)
    with run.held() as ranks:
        run.slurm.run("scancel", run.job)
        run.wait_for_signal(ranks)
    run.finish(process, status=1)
    assert run.reasons == ["canceled"]
    assert (replace(run, seed=2).folder / "summary.json").exists()
    assert run.submissions == 2
    run.finish(run.start(all_seeds=True))
    assert run.reasons == ["canceled", "finished"]


def snakemake_is_requeued(run: Submitted) -> None:
    """Snakemake, itself a job, is requeued and finds its running training again."""
    # Without `exec`, the shell ends first, and Slurm, without cgroups here, loses sight of its child.
    command = " ".join(["exec", str(SNAKEMAKE), "--profile", "slurm", *run.options()])
    folder = run.checkout.folder
    driver = run.slurm.run(
        "sbatch", "--parsable", "--requeue", "--mem=1000", "--open-mode=append", f"--chdir={folder}",
        f"--output={folder}/snakemake.log", f"--wrap={command}",
    )  # fmt: skip
    with run.held():
        job = run.job
        run.slurm.run("scontrol", "requeue", driver)
        run.slurm.wait("Snakemake watches the training", lambda: "earlier Snakemake" in run.terminal)
        assert run.job == job
    run.slurm.wait("Snakemake ends", lambda: _state(run, driver) in ("COMPLETED", "FAILED"))
    assert _state(run, driver) == "COMPLETED", run.terminal[-3000:]
    assert_undisturbed(run)


def unknown_partition(run: Submitted) -> None:
    _refused(run, "nowhere", run.slurm.options.low, SBATCH_PARTITION="nowhere")


def unknown_account(run: Submitted) -> None:
    _refused(run, "strangers", run.slurm.options.account, SBATCH_ACCOUNT="strangers")


def error_in_the_model(run: Submitted) -> None:
    """An error in the user's code ends the training after one try."""
    run.finish(run.start(), status=1)
    assert run.submissions == 1
    assert run.reasons == ["bad input"]
    assert "net.py:9 in net: RuntimeError: the layer has no width" in run.terminal


def assert_preempted(run: Submitted) -> None:
    *before, last = run.reasons_of_training
    assert set(before) == {"preempted"}
    assert last == "finished"


def assert_undisturbed(run: Submitted) -> None:
    """Assert that the training ran once, in one try."""
    assert run.reasons == ["finished"]
    assert run.retries == 0


def _refused(run: Submitted, wrong: str, right: str, **variables: str) -> None:
    """Start Snakemake with a value that Slurm does not know, and assert that one line says so.

    Args:
        run: the training.
        wrong: the value.
        right: a known value, which the line names.
        **variables: environment variables that set the value.
    """
    run.finish(run.start(**variables), status=1)
    assert run.submissions <= 1
    lines = [line for line in run.terminal.splitlines() if wrong in line and "sbatch call" not in line]
    assert any(right in line and next(iter(variables)) in line for line in lines), run.terminal
    assert len(run.terminal) < 20_000, "a reason is not buried under repetitions"


@contextmanager
def _preempted(run: Submitted) -> Iterator[str]:
    """Preempt the training, yield the number of the urgent job, and wait until Snakemake has finished the training."""
    process = run.start()
    with run.held() as ranks:
        number = _preempt(run, ranks)
    yield number
    run.finish(process)


def _preempt(run: Submitted, ranks: list[int]) -> str:
    """Submit an urgent job, wait until its victim is signaled, and return its number."""
    number = run.slurm.run(*urgent(run.slurm), "--parsable")
    run.slurm.wait("the job gives way", lambda: run.gives_way)
    run.wait_for_signal(ranks)
    return number


def _state(run: Submitted, number: str) -> str:
    return run.slurm.run("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T")
