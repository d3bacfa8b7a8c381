"""No event on Slurm clusters with different rules makes a training hang, lose work, or try again what cannot succeed."""

import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import psutil
import pytest
from helpers.repository_copy import environment
from helpers.slurm_clients import fail_calls, failures_left
from helpers.slurm_cluster import (
    Slurm,
    cluster,
    kill_controller,
    kill_node,
    kill_slurmd,
    start_controller,
    start_node,
)
from helpers.slurm_options import ACCOUNTING, CANCEL, PLAIN, ClusterOptions
from helpers.slurm_stories import (
    EPOCHS,
    NNLO,
    RESOURCES,
    SNAKEMAKE,
    TRAINING,
    Prepared,
    Submitted,
    assert_trained_once,
    edit,
    held,
    preempt,
)

# The first test of a site waits for all stories of the site.
pytestmark = [pytest.mark.exhaustive, pytest.mark.slurm, pytest.mark.timeout(3600)]


# The ranks of a job fail; the checks before the start build the model outside of a rank. Slurm's PMI2 sets PMI_RANK.
FAILING_NET = """
import os

from torch import nn

def net(shape, classes):
    if {"PMI_RANK", "SLURM_STEP_ID"} & os.environ.keys():
        raise RuntimeError("the layer has no width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


def preempted(run: Submitted) -> None:
    with run.interrupted() as ranks:
        preempt(run, ranks)


def preempted_with_grace_time(run: Submitted) -> None:
    """The job leaves its nodes as soon as it has saved, not at the end of the grace time, which may be 25 minutes."""
    preempted(run)


def preempted_without_requeue(run: Submitted) -> None:
    """Slurm may not requeue this job, although its cluster requeues others."""
    with run.interrupted() as ranks:
        run.slurm.run("scontrol", "update", f"JobId={run.job}", "Requeue=0")
        preempt(run, ranks)


def requeued_by_user(run: Submitted) -> None:
    with run.interrupted() as ranks:
        run.slurm.run("scontrol", "requeue", run.job)
        run.wait_for_signal(ranks)


def time_limit(run: Submitted) -> None:
    """With a limit of three minutes the training reserves half of it for saving, unless Slurm sends a warning earlier."""
    with run.interrupted():
        run.slurm.wait("it is time to save", lambda: run.age > 105)


def canceled(run: Submitted) -> None:
    """A training that a user cancels is not submitted again; the other one finishes, and the same command resumes."""
    both = ("--until", "train")
    with run.interrupted(*both, status=1) as ranks:
        run.slurm.run("scancel", run.job)
        run.wait_for_signal(ranks)
    assert "canceled; run the same command again to resume" in run.terminal
    assert run.reasons == ["canceled"]
    assert (replace(run, seed=2).folder / "summary.json").exists()
    assert run.submissions == 2
    run.start(*both)
    run.finish()


def snakemake_is_killed(run: Submitted) -> None:
    """After Snakemake is killed, a new Snakemake watches the job that still trains."""
    first = run.start(run.target)
    with held(run):
        first.kill()
        first.wait()
        run.start(run.target)
        run.slurm.wait("the job is found", lambda: f"nnlo: job {run.job} (train" in run.terminal)
    run.finish()
    assert run.submissions == 1


def snakemake_is_requeued(run: Submitted) -> None:
    """Snakemake, itself a job, is requeued and finds its running training again."""
    # Without `exec`, the shell ends first, and Slurm, without cgroups here, loses sight of its child.
    command = ["exec", str(SNAKEMAKE), "--profile", "slurm", run.target, "--configfile", f"{run.name}.yaml"]
    folder = run.checkout.folder
    driver = run.slurm.run(
        "sbatch", "--parsable", "--requeue", "--mem=1000", "--open-mode=append", f"--chdir={folder}",
        f"--output={folder}/snakemake.log", f"--wrap={' '.join(command)}",
    )  # fmt: skip

    def state() -> str:
        return run.slurm.run("squeue", "--noheader", "--states=all", f"--jobs={driver}", "--format=%T")

    with held(run):
        job = run.job
        run.slurm.run("scontrol", "requeue", driver)
        run.slurm.wait("Snakemake watches the training", lambda: "earlier Snakemake" in run.terminal)
        assert run.job == job
    run.slurm.wait("Snakemake ends", lambda: state() in ("COMPLETED", "FAILED"))
    assert state() == "COMPLETED", run.terminal[-3000:]


def failing_commands(run: Submitted) -> None:
    """Submissions and queries that time out are repeated; the upstream plugin calls squeue up to five times for a look."""
    for client in ("sbatch", "squeue"):
        fail_calls(run.checkout.folder, client, 2)
    with run.interrupted():
        assert not failures_left(run.checkout.folder, "sbatch")
        fail_calls(run.checkout.folder, "squeue", 5)
        run.slurm.wait("squeue fails", lambda: failures_left(run.checkout.folder, "squeue") < 5)


def controller_is_down(run: Submitted) -> None:
    """The job ends while slurmctld is down for longer than all queries of one look."""
    run.start(run.target)
    with held(run):
        # slurmctld saves changes after five seconds, and would start the job twice without this record.
        run.slurm.wait("the controller has saved that the job runs", lambda: run.age > 12)
        kill_controller(run.slurm)
        end = run.age + 75
        run.slurm.wait("slurmctld was down for a while", lambda: run.age > end)
    run.slurm.wait("the training is over", lambda: run.epochs_done == EPOCHS)
    start_controller(run.slurm)
    run.finish()


def forgotten_between_two_looks(run: Submitted) -> None:
    """The job ends, and Slurm forgets it, while Snakemake does not look."""
    process = run.start(run.target)
    with held(run):
        show = ("scontrol", "show", "job", run.job)
        process.send_signal(signal.SIGSTOP)
    try:
        run.slurm.wait("Slurm forgets the job", lambda: not run.slurm.succeeds(*show))
    finally:
        process.send_signal(signal.SIGCONT)
    run.finish()


def node_failure(run: Submitted) -> None:
    """The node of the launcher is lost, while its processes are suspended and continue later; then a node dies."""
    run.start(run.target)
    with held(run, launcher=True):
        lost, earlier, before = run.shown("%B"), run.launcher, run.epochs_done
        kill_slurmd(run.slurm, lost)
        _mark_down(run, lost)
        run.slurm.wait("the next attempt trains", lambda: run.epochs_done > before)
    with held(run, epochs=before + 2):
        dead = run.shown("%B")
        assert dead != lost
        start_node(run.slurm, lost)
        kill_node(run.slurm, dead)
        _mark_down(run, dead)
    run.finish()
    start_node(run.slurm, dead)
    assert not psutil.pid_exists(earlier), "shut out of the folder, it ends itself"


def node_of_a_rank_fails_without_requeue(run: Submitted) -> None:
    """Slurm ends the job, which may not be queued again, on the node that is left; Snakemake submits it again."""
    with run.interrupted():
        run.slurm.run("scontrol", "update", f"JobId={run.job}", "Requeue=0")
        nodes = run.slurm.run("scontrol", "show", "hostnames", run.shown("%N")).split()
        (lost,) = {*nodes} - {run.shown("%B")}
        _mark_down(run, lost)
    # A slurmd that registers again may have resumed the node already.
    resume = ("scontrol", "update", f"NodeName={lost}", "State=RESUME")
    run.slurm.wait("the node is good again", lambda: run.slurm.succeeds(*resume) or run.slurm.idle())


def requeued_and_held(run: Submitted) -> None:
    """The terminal names the job that Slurm holds, with the command that releases it."""
    with run.interrupted() as ranks:
        run.slurm.run("scontrol", "requeuehold", run.job)
        run.wait_for_signal(ranks)
        command = f"scontrol release {run.job}"
        run.slurm.wait("the terminal names the command", lambda: f"; `{command}`" in run.terminal)
        run.slurm.run(*command.split())


def _mark_down(run: Submitted, node: str) -> None:
    """Say at once what slurmctld notices after minutes of silence."""
    run.slurm.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=silent")
    run.slurm.wait("the job has lost its node", lambda: not run.is_running)


def submit_limit(run: Submitted) -> None:
    """Four trainings of a user who may have two jobs in the queue all finish, and no try is counted."""
    run.start("--until", "train", SBATCH_ACCOUNT="limited")
    run.finish()
    for seed in (2, 3, 4):
        assert replace(run, seed=seed).reasons == ["finished"]


def pending_for_ever(run: Submitted) -> None:
    """The terminal names the job, the reason and the remedy once; the user applies the remedy."""
    short = run.slurm.options.short
    run.slurm.run("scontrol", "update", f"PartitionName={short}", "State=DOWN")
    run.start(run.target, SBATCH_PARTITION=short)
    run.slurm.wait("the job is submitted", lambda: bool(run.queued))
    (job,) = run.queued
    run.slurm.run("scontrol", "update", f"PartitionName={short}", "State=UP", "MaxTime=5")
    run.slurm.wait("the terminal names the reason", lambda: "PartitionTimeLimit" in run.terminal)
    (line,) = [line for line in run.terminal.splitlines() if "PartitionTimeLimit" in line]
    assert all(word in line for word in (job, "train allreduce", "resources.runtime")), line
    run.slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=5")
    run.finish()


def memory_limit(run: Submitted) -> None:
    """A training that Slurm kills for its memory gets more memory."""
    run.start(run.target)
    run.finish()


def unknown_partition(run: Submitted) -> None:
    _refused(run, "nowhere", SBATCH_PARTITION="nowhere")


def unknown_account(run: Submitted) -> None:
    _refused(run, "strangers", SBATCH_ACCOUNT="strangers")


def _refused(run: Submitted, wrong: str, **variables: str) -> None:
    """Start Snakemake with a value that Slurm does not know; one line quotes Slurm and names the key."""
    run.start(run.target, **variables)
    run.finish(status=2)
    assert run.submissions == 0
    lines = [line for line in run.terminal.splitlines() if wrong in line and "sbatch call" not in line]
    assert any(next(iter(variables)) in line for line in lines), run.terminal
    assert len(run.terminal) < 20_000, "a reason is not buried under repetitions"


def error_in_the_model(run: Submitted) -> None:
    """An error in the user's code ends the training after one try."""
    (run.checkout.folder / "net.py").write_text(FAILING_NET)
    run.start(run.target)
    run.finish(status=1)
    assert run.submissions == 1
    assert run.reasons == ["user code"]
    assert "net.py:8 in net: RuntimeError: the layer has no width" in run.terminal


@dataclass(frozen=True)
class Story:
    """A story and its end."""

    tell: Callable[[Submitted], None]  # the story
    # reason of each attempt before the last, which finishes; empty if the first attempt finishes
    before: str = ""
    # all attempts are of one job, which Slurm requeued; otherwise Snakemake submits again
    one_job: bool = True
    alone: bool = False  # the story disturbs other jobs of the cluster, so it runs after them
    settings: dict[str, object] = field(default_factory=dict)  # changes of the experiment
    logged: tuple[str, ...] = ()  # words in the log of the job


def asking(**resources: object) -> dict[str, object]:
    """Return the settings of a training that asks for other resources."""
    return {"resources": RESOURCES | resources}


GRACEFUL = asking(partition=ClusterOptions().graceful)
BROKEN = {"model": {"name": "net.py:net", "args": {}}}
SITES: dict[str, tuple[ClusterOptions, list[Story]]] = {
    "requeuing": (ClusterOptions(), [
        Story(time_limit, "time limit", settings=asking(runtime=3)),
        Story(snakemake_is_killed),
        Story(requeued_by_user, "preempted"),
        Story(preempted_with_grace_time, "preempted", True, True, GRACEFUL, ("is queued again", "attempt 1 ended")),
        Story(node_failure, "node failure", alone=True),
    ]),
    "without accounting": (PLAIN, [
        Story(forgotten_between_two_looks),
        Story(canceled, "canceled", False, settings={"seeds": [1, 2]}),
        Story(failing_commands),
        Story(controller_is_down, alone=True),
        Story(preempted_without_requeue, "preempted", False, True),
        Story(requeued_and_held, "preempted"),
        Story(node_of_a_rank_fails_without_requeue, "preempted", False, alone=True),
    ]),
    "canceling": (CANCEL, [
        Story(preempted, "preempted", False, True),
        Story(preempted_with_grace_time, "preempted", False, True, GRACEFUL),
    ]),
    "limiting": (ACCOUNTING, [
        Story(submit_limit, settings={"seeds": [1, 2, 3, 4]}),
        Story(memory_limit, "out of memory", False, settings=asking(mem_mb=500)),  # Snakemake alone needs 280 MB of a node
        Story(snakemake_is_requeued),
        Story(pending_for_ever),
        Story(unknown_partition, "refused"),
        Story(unknown_account, "refused"),
        Story(error_in_the_model, "refused", settings=BROKEN),
    ]),
}  # fmt: skip
STORIES = [(site, story) for site, (_, stories) in SITES.items() for story in stories]


@pytest.fixture(scope="module")
def outcome(
    request: pytest.FixtureRequest, prepared: Prepared, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Story], Submitted | Exception]:
    """Return a function that runs all requested stories of a site when it is first asked for one of them.

    It returns the training of the story, or the error with which the story ended.
    """
    tests = [test.callspec.params for test in request.session.items if test.module is request.module]
    ended: dict[tuple[str, str], Submitted | Exception] = {}

    def tell(site: str, slurm: Slurm, story: Story) -> None:
        name = story.tell.__name__
        run = Submitted(slurm, prepared.copy(slurm.folder.parent / name), name)
        edit(run.checkout, name, **TRAINING | {"resources": RESOURCES} | story.settings)
        try:
            story.tell(run)
            ended[site, name] = run
        except Exception as error:
            ended[site, name] = error
        finally:
            run.abandon()

    def outcome(site: str, story: Story) -> Submitted | Exception:
        requested = [each["story"] for each in tests if each["site"] == site]
        if (site, story.tell.__name__) not in ended:
            with cluster(tmp_path_factory.mktemp("site") / "slurm", SITES[site][0]) as slurm:
                with ThreadPoolExecutor(3) as pool:
                    calm = [each for each in requested if not each.alone]
                    list(pool.map(lambda each: tell(site, slurm, each), calm))
                for each in requested:
                    if each.alone:
                        tell(site, slurm, each)
        return ended[site, story.tell.__name__]

    return outcome


@pytest.mark.parametrize(
    ("site", "story"), STORIES, ids=[f"{site}, {story.tell.__name__}" for site, story in STORIES]
)
def test_a_disturbed_training_ends_as_if_undisturbed(
    site: str, story: Story, outcome: Callable[[str, Story], Submitted | Exception], prepared: Prepared
) -> None:
    if isinstance(run := outcome(site, story), Exception):
        raise run
    if story.before == "refused":  # the story has looked at the sentence
        return
    assert_trained_once(run, prepared.weights)
    *before, last = run.reasons_of_training
    # On a busy machine there may be more than one attempt before the last.
    assert (set(before), last) == ({story.before} - {""}, "finished")
    assert run.retries == 0 or story.before == "out of memory"
    assert not story.one_job or len(set(run.jobs)) == 1
    assert all(words in run.log for words in story.logged)
    done = subprocess.run(
        [NNLO, "verify", run.folder], cwd=run.checkout.folder, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout
