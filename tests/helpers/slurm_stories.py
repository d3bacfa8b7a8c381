"""Trainings that Snakemake submits to a Slurm cluster: suspended at an epoch, disturbed, and compared with an undisturbed one."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from helpers.repository_copy import Checkout, copy_checkout, environment
from helpers.slurm_clients import calls
from helpers.slurm_cluster import Slurm

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


@dataclass(frozen=True)
class Prepared:
    """A clone of the repository in which `nnlo run` trains without Slurm, and converts the data for all copies."""

    checkout: Checkout
    training: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, folder: Path) -> "Prepared":
        """Copy the repository, and start the undisturbed training."""
        checkout = copy_checkout(folder)
        edit(checkout, "undisturbed", **TRAINING)
        with (folder / "undisturbed.log").open("w") as log:
            command = [NNLO, "run", "undisturbed.yaml"]
            return cls(
                checkout, subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
            )

    @property
    def weights(self) -> bytes:
        """Model file of the undisturbed training, after its end."""
        assert self.training.wait(900) == 0, (self.checkout.folder / "undisturbed.log").read_text()
        return (self.checkout.folder / "results/undisturbed/allreduce/seed-1/model.safetensors").read_bytes()

    def copy(self, folder: Path) -> Checkout:
        """Copy the clone with its data, after the end of the undisturbed training."""
        assert self.weights
        ignored = shutil.ignore_patterns("results")
        return Checkout(shutil.copytree(self.checkout.folder, folder, ignore=ignored, symlinks=True))


def edit(checkout: Checkout, name: str, **changes: object) -> None:
    """Write the default experiment with a new name and changed top-level keys to NAME.yaml."""
    settings = yaml.safe_load((checkout.folder / "config/config.yaml").read_text()) | {"name": name} | changes
    (checkout.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


@dataclass(frozen=True)
class Clone:
    """A clone in which Snakemake submits the jobs of the experiment `name` to a cluster."""

    slurm: Slurm
    checkout: Checkout
    name: str
    _snakemakes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, *targets: str, **variables: str) -> "subprocess.Popen[str]":
        """Start Snakemake with targets and further environment variables; append its output to snakemake.log."""
        command = [SNAKEMAKE, "--profile", "slurm", *targets, "--configfile", f"{self.name}.yaml"]
        with (self.checkout.folder / "snakemake.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.checkout.folder, env=environment() | self.slurm.environment | variables,
                stdout=log, stderr=log, text=True,
            )  # fmt: skip
        self._snakemakes.append(process)
        return process

    def finish(self, status: int = 0) -> None:
        """Wait for the end of the last Snakemake, and assert its exit status; kill it if it does not end."""
        process = self._snakemakes[-1]
        try:
            self.slurm.wait("Snakemake is done", lambda: process.poll() is not None, seconds=1200)
        except TimeoutError as error:
            error.add_note(
                self.slurm.run("sinfo", "-N", "-l") + self.slurm.run("squeue", "-a", "-l") + self.terminal
            )
            raise
        finally:
            process.kill()
        assert process.returncode == status, self.terminal[-3000:]

    @property
    def terminal(self) -> str:
        """The output of all Snakemakes."""
        return (self.checkout.folder / "snakemake.log").read_text()

    @property
    def submissions(self) -> int:
        """Number of calls of sbatch by Snakemake."""
        return calls(self.slurm.folder, "sbatch", self.checkout.folder)

    @property
    def queued(self) -> list[str]:
        """Numbers of its jobs that are pending or running."""
        queue = self.slurm.run("squeue", "--noheader", "--format=%A %Z").splitlines()
        return [line.split()[0] for line in queue if line.endswith(f" {self.checkout.folder}")]

    def abandon(self) -> None:
        """Kill all Snakemakes and cancel their jobs."""
        for process in self._snakemakes:
            process.kill()
            process.wait()
        if jobs := self.queued:
            self.slurm.run("scancel", *jobs)


@dataclass(frozen=True)
class Submitted(Clone):
    """The training `allreduce` with one seed of the experiment, as a job of the cluster."""

    seed: int = 1

    @property
    def folder(self) -> Path:
        return self.checkout.folder / f"results/{self.name}/allreduce/seed-{self.seed}"

    @property
    def log(self) -> str:
        """Output of the job's command."""
        return (self.checkout.folder / f"logs/{self.name}/allreduce/seed-{self.seed}/train.log").read_text()

    @property
    def target(self) -> str:
        """Target of Snakemake for this training without the report."""
        return str(self.folder.relative_to(self.checkout.folder) / "evaluation.json")

    @contextmanager
    def interrupted(self, *targets: str, status: int = 0) -> Iterator[list[int]]:
        """Start Snakemake, suspend the ranks during the `with` block, and wait for the end of Snakemake."""
        self.start(*(targets or [self.target]))
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
    def reasons(self) -> list[str]:
        return [attempt["reason"] for attempt in self.rows("attempts")]

    @property
    def reasons_of_training(self) -> list[str]:
        """Reasons without the attempts that had no step to train.

        They occur because Snakemake deletes the output of a job that is preempted as it ends.
        """
        return [each["reason"] for each in self.rows("attempts") if not finished_again(each)]

    @property
    def jobs(self) -> list[str]:
        """Job of each attempt."""
        return [str(attempt["job"]) for attempt in self.rows("attempts")]

    @property
    def job(self) -> str:
        """Number of the job that trains, or of the last job that trained."""
        return str(self._lease.get("job") or self.jobs[-1])

    @property
    def launcher(self) -> int:
        return int(self._lease["pid"])

    @property
    def is_running(self) -> bool:
        return self.shown("%T") == "RUNNING"

    @property
    def gives_way(self) -> bool:
        """Whether the job is being preempted; a job with grace time still runs for a while."""
        job = ("scontrol", "show", "job", self.job)
        return not self.is_running or "PreemptTime=None" not in self.slurm.run(*job)

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
    def submitted(self) -> list[str]:
        """Numbers of the jobs that Snakemake submitted for this training, from its output."""
        return re.findall(rf"jobid (\d+) \(log: \S*rule_train/\S*seed-{self.seed}/", self.terminal)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the complete lines of a file of the training."""
        path = self.folder / f"state/{name}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def shown(self, field: str) -> str:
        """Return a field of squeue."""
        return self.slurm.run(
            "squeue", "--noheader", "--states=all", f"--jobs={self.job}", f"--format={field}"
        )

    @property
    def _lease(self) -> dict[str, Any]:
        """The lease of the attempt that trains; empty if no attempt holds the lease."""
        try:
            return json.loads((self.folder / "state/lease.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
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
    for before, after in pairwise(run.rows("attempts")):
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
