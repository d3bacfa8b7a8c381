"""Stories of trainings in Slurm: each function disturbs a training that Snakemake submitted, and ends when Snakemake does."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

from helpers.repository_copy import Checkout, environment
from helpers.slurm_clients import calls, fail_calls, failures_left
from helpers.slurm_cluster import Slurm, kill_controller, kill_node, kill_slurmd, start_controller, start_node

SNAKEMAKE = Path(sys.executable).with_name("snakemake")
NNLO = SNAKEMAKE.with_name("nnlo")
EPOCHS = 40  # so many that no training ends before a signal that was already sent arrives
TRAINING = {
    "seeds": [1],
    "runs": {"allreduce": {"parallel": {"ranks": 2}}},
    "train": {"epochs": EPOCHS, "batch_size": 16},
    "checkpoint": {"every": "1 epoch"},
}
RESOURCES = {"nodes": 2, "mem_mb": 1500, "runtime": 10}
# The ranks of a job fail; the checks before the start build the model outside of a rank. Slurm's PMI2 sets PMI_RANK.
FAILING_NET = """
import os

from torch import nn

def net(shape, classes):
    if {"PMI_RANK", "SLURM_STEP_ID"} & os.environ.keys():
        raise RuntimeError("the layer has no width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


def edit(checkout: Checkout, name: str, **changes: object) -> None:
    """Write the default experiment with a new name and changed top-level keys to NAME.yaml."""
    settings = yaml.safe_load((checkout.folder / "config/config.yaml").read_text()) | {"name": name} | changes
    (checkout.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


def start(slurm: Slurm, checkout: Checkout, *options: str, **variables: str) -> "subprocess.Popen[str]":
    """Start Snakemake with options and environment variables in a copy of the repository; append to snakemake.log."""
    with (checkout.folder / "snakemake.log").open("a") as log:
        return subprocess.Popen(
            [SNAKEMAKE, "--profile", "slurm", *options], cwd=checkout.folder, stdout=log, stderr=log, text=True,
            env=environment() | slurm.environment | variables,
        )  # fmt: skip


def finish(slurm: Slurm, checkout: Checkout, process: "subprocess.Popen[str]", status: int = 0) -> None:
    """Wait for Snakemake to end, and assert that it ends with a status; kill it if it does not end."""
    try:
        slurm.wait("Snakemake is done", lambda: process.poll() is not None, seconds=1200)
    except TimeoutError as error:
        error.add_note(slurm.run("sinfo", "-N", "-l") + slurm.run("squeue", "-a", "-l") + terminal(checkout))
        raise
    finally:
        process.kill()
    assert process.returncode == status, terminal(checkout)[-3000:]


def terminal(checkout: Checkout) -> str:
    """Return the output of all Snakemakes in a copy of the repository."""
    return (checkout.folder / "snakemake.log").read_text()


def start_undisturbed(checkout: Checkout, name: str) -> "subprocess.Popen[bytes]":
    """Start the first training of an experiment on this machine, without Slurm, as experiment `undisturbed`."""
    command = [NNLO, "run", f"{name}.yaml", "--set", "name=undisturbed"]
    with (checkout.folder / "undisturbed.log").open("w") as log:
        return subprocess.Popen(command, cwd=checkout.folder, env=environment(), stdout=log, stderr=log)


def undisturbed_weights(checkout: Checkout, process: "subprocess.Popen[bytes]") -> bytes:
    """Wait for the undisturbed training, and return the bytes of its model file."""
    assert process.wait(600) == 0, (checkout.folder / "undisturbed.log").read_text()
    return (checkout.folder / "results/undisturbed/allreduce/seed-1/model.safetensors").read_bytes()


@dataclass(frozen=True)
class Submitted:
    """The training `allreduce` with one seed of the experiment `name` as a job of a cluster."""

    slurm: Slurm
    checkout: Checkout
    name: str
    seed: int = 1
    _snakemakes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.checkout.folder / f"results/{self.name}/allreduce/seed-{self.seed}"

    @property
    def log(self) -> str:
        """Output of the job's command."""
        return (self.checkout.folder / f"logs/{self.name}/allreduce/seed-{self.seed}/train.log").read_text()

    def start(self, *targets: str, **variables: str) -> "subprocess.Popen[str]":
        """Start Snakemake with targets, by default this training without its evaluation and the report."""
        options = [*targets, "--configfile", f"{self.name}.yaml"] if targets else self.options
        self._snakemakes.append(start(self.slurm, self.checkout, *options, **variables))
        return self._snakemakes[-1]

    @property
    def options(self) -> list[str]:
        """Options of Snakemake for this training only."""
        summary = self.folder.relative_to(self.checkout.folder) / "summary.json"
        return [str(summary), "--configfile", f"{self.name}.yaml"]

    def finish(self, status: int = 0) -> None:
        """Wait until the last Snakemake has ended, and assert its exit status."""
        finish(self.slurm, self.checkout, self._snakemakes[-1], status)

    @contextmanager
    def interrupted(self, *targets: str, status: int = 0) -> Iterator[list[int]]:
        """Start Snakemake, suspend the ranks during the `with` block, and wait for the end of Snakemake."""
        self.start(*targets)
        with held(self) as ranks:
            yield ranks
        self.finish(status)

    def suspend(self, launcher: bool) -> list[int]:
        """Suspend the ranks, and the launcher if asked for; return their process ids."""
        pids = [json.loads(path.read_text())["pid"] for path in (self.folder / "state/ranks").glob("[0-9]")]
        pids += [self.launcher] if launcher else []
        _signal(pids, signal.SIGSTOP)
        return pids

    def wait_for_signal(self, pids: list[int]) -> None:
        """Wait until Slurm has signaled suspended processes, which may be seconds after the controller's decision."""
        self.slurm.wait("Slurm signals the job", lambda: any(map(_is_signaled, pids)))

    @property
    def epochs_done(self) -> int:
        return len(self.rows("history"))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return self.rows("attempts")

    @property
    def reasons(self) -> list[str]:
        return [attempt["reason"] for attempt in self.attempts]

    @property
    def reasons_of_training(self) -> list[str]:
        """Reasons without the attempts that had no step to train.

        They occur because Snakemake deletes the output of a job that is preempted as it ends.
        """
        return [each["reason"] for each in self.attempts if not finished_again(each)]

    @property
    def jobs(self) -> list[str]:
        return [str(attempt["job"]) for attempt in self.attempts]

    @property
    def job(self) -> str:
        """Number of the job that trains, or of the last job that trained."""
        return str(self._lease.get("job") or self.jobs[-1])

    @property
    def launcher(self) -> int:
        return int(self._lease["pid"])

    @property
    def is_running(self) -> bool:
        return self._asked("%T") == "RUNNING"

    @property
    def gives_way(self) -> bool:
        """Whether the job is being preempted; a job with grace time still runs for a while."""
        shown = ("scontrol", "show", "job", self.job)
        return not self.is_running or "PreemptTime=None" not in self.slurm.run(*shown)

    @property
    def batch_host(self) -> str:
        """Node of the job's launcher."""
        return self._asked("%B")

    @property
    def age(self) -> float:
        """Seconds since the current attempt began; infinite if no attempt trains."""
        since = self._lease.get("since")
        return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() if since else math.inf

    @property
    def retries(self) -> int:
        """Number of tries that Snakemake counted."""
        return self.terminal.count("Trying to restart job")

    @property
    def terminal(self) -> str:
        return terminal(self.checkout)

    @property
    def submissions(self) -> int:
        """Number of calls of sbatch by Snakemake."""
        return calls(self.slurm.folder, "sbatch", self.checkout.folder)

    @property
    def submitted(self) -> list[str]:
        """Numbers of the jobs that Snakemake submitted for this training, from its log."""
        return re.findall(rf"jobid (\d+) \(log: \S*rule_train/\S*seed-{self.seed}/", self.terminal)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the complete lines of a file of the training."""
        path = self.folder / f"state/{name}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def abandon(self) -> None:
        """Kill all Snakemakes of the training and cancel their jobs."""
        for process in self._snakemakes:
            process.kill()
            process.wait()
        if jobs := self.queued:
            self.slurm.run("scancel", *jobs)

    @property
    def queued(self) -> list[str]:
        """Numbers of its jobs that are pending or running."""
        queue = self.slurm.run("squeue", "--noheader", "--format=%A %Z").splitlines()
        return [line.split()[0] for line in queue if line.endswith(f" {self.checkout.folder}")]

    def _asked(self, what: str) -> str:
        return self.slurm.run(
            "squeue", "--noheader", "--states=all", f"--jobs={self.job}", f"--format={what}"
        )

    @property
    def _lease(self) -> dict[str, Any]:
        """The lease of the attempt that trains; empty if no attempt holds the lease."""
        try:
            return json.loads((self.folder / "state/lease.json").read_text())
        except FileNotFoundError:
            return {}


@contextmanager
def held(*runs: Submitted, epochs: int = 2, launcher: bool = False) -> Iterator[list[int]]:
    """Suspend the ranks of each training as soon as it has trained some epochs, so that none ends in the `with` block.

    Yields the ids of the suspended processes, in the order of the trainings.
    """
    pids: dict[int, list[int]] = {}

    def all_are_suspended() -> bool:
        for number, run in enumerate(runs):
            if number not in pids and run.epochs_done >= epochs:
                pids[number] = run.suspend(launcher)
        return len(pids) == len(runs)

    try:
        runs[0].slurm.wait(f"{epochs} epochs are done", all_are_suspended)
        yield [pid for number in sorted(pids) for pid in pids[number]]
    finally:
        for each in pids.values():
            _signal(each, signal.SIGCONT)  # Slurm, too, continues processes before it terminates a job


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_signaled(pid: int) -> bool:
    """Return True if a suspended process has a pending signal, runs, or has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return "T" not in fields["State"].split()[0] or any(int(fields[key], 16) for key in ("SigPnd", "ShdPnd"))


def finished_again(attempt: dict[str, Any]) -> bool:
    """Return True if an attempt finished without training a step."""
    return attempt["reason"] == "finished" and attempt["from"] == attempt["reached"]


def assert_trained_once(run: Submitted, weights: bytes | None = None) -> None:
    """Assert that a training lost no step and repeated none, and ended with the weights of an undisturbed training."""
    assert weights is None or (run.folder / "model.safetensors").read_bytes() == weights
    epochs = range(1, EPOCHS + 1)
    assert [row["epoch"] for row in run.rows("history")] == list(epochs)
    ledger = [(row["epoch"], row["missed"], row["repeated"]) for row in run.rows("ledger")]
    assert ledger == [(epoch, 0, 0) for epoch in epochs]
    for before, after in pairwise(run.attempts):
        assert after["from"] == before["saved"], "work was lost"
        assert before["ended"] <= after["started"], "two trained at once"


def preempt(run: Submitted, ranks: list[int], *nodes: str) -> None:
    """Submit an urgent job for the given nodes, or for all, and wait until Slurm has signaled the training's ranks."""
    where = (f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}") if nodes else ("--nodes=3",)
    urgent = (
        "sbatch",
        f"--partition={run.slurm.options.high}",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=true",
    )
    run.slurm.run(*urgent, *where)
    run.slurm.wait("the job gives way", lambda: run.gives_way)
    run.wait_for_signal(ranks)


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
    first = run.start()
    with held(run):
        first.kill()
        first.wait()
        run.start()
        run.slurm.wait("the job is found", lambda: f"nnlo: job {run.job} (train" in run.terminal)
    run.finish()
    assert run.submissions == 1


def snakemake_is_requeued(run: Submitted) -> None:
    """Snakemake, itself a job, is requeued and finds its running training again."""
    # Without `exec`, the shell ends first, and Slurm, without cgroups here, loses sight of its child.
    command = ["exec", str(SNAKEMAKE), "--profile", "slurm", *run.options]
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
    run.start()
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
    process = run.start()
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
    run.start()
    with held(run, launcher=True):
        lost, earlier, before = run.batch_host, run.launcher, run.epochs_done
        kill_slurmd(run.slurm, lost)
        _mark_down(run, lost)
        run.slurm.wait("the next attempt trains", lambda: run.epochs_done > before)
    with held(run, epochs=before + 2):
        dead = run.batch_host
        assert dead != lost
        start_node(run.slurm, lost)
        kill_node(run.slurm, dead)
        _mark_down(run, dead)
    run.finish()
    start_node(run.slurm, dead)
    assert not psutil.pid_exists(earlier), "shut out of the folder, it ends itself"


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
    run.start(SBATCH_PARTITION=short)
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
    run.start()
    run.finish()


def unknown_partition(run: Submitted) -> None:
    _refused(run, "nowhere", run.slurm.options.low, SBATCH_PARTITION="nowhere")


def unknown_account(run: Submitted) -> None:
    _refused(run, "strangers", run.slurm.options.account, SBATCH_ACCOUNT="strangers")


def _refused(run: Submitted, wrong: str, right: str, **variables: str) -> None:
    """Start Snakemake with a value that Slurm does not know; one line says so and names a known value."""
    run.start(**variables)
    run.finish(status=1)
    assert run.submissions <= 1
    lines = [line for line in run.terminal.splitlines() if wrong in line and "sbatch call" not in line]
    assert any(right in line and next(iter(variables)) in line for line in lines), run.terminal
    assert len(run.terminal) < 20_000, "a reason is not buried under repetitions"


def error_in_the_model(run: Submitted) -> None:
    """An error in the user's code ends the training after one try."""
    (run.checkout.folder / "net.py").write_text(FAILING_NET)
    run.start()
    run.finish(status=1)
    assert run.submissions == 1
    assert run.reasons == ["bad input"]
    assert "net.py:8 in net: RuntimeError: the layer has no width" in run.terminal
