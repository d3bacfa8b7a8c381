"""Trainings that Snakemake submits to a Slurm cluster from a copy of the repository, and their files and logs."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from helpers.repository_copy import Checkout, environment
from helpers.slurm_clients import calls
from helpers.slurm_cluster import Slurm

SNAKEMAKE = Path(sys.executable).with_name("snakemake")
NNLO = SNAKEMAKE.with_name("nnlo")


def start(
    slurm: Slurm, checkout: Checkout, *options: str, variables: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start Snakemake in the copied repository; append its output to snakemake.log.

    Args:
        slurm: cluster of the jobs.
        checkout: the copy.
        *options: options of Snakemake.
        variables: further environment variables.
    """
    with (checkout.folder / "snakemake.log").open("a") as log:
        return subprocess.Popen(
            [SNAKEMAKE, "--profile", "slurm", *options], cwd=checkout.folder, stdout=log, stderr=log, text=True,
            env=environment() | slurm.environment | dict(variables or {}), preexec_fn=_hear_ctrl_c,
        )  # fmt: skip


def _hear_ctrl_c() -> None:
    """Reset the handler of SIGINT, because background processes of a shell ignore SIGINT and pass this on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(
    slurm: Slurm, checkout: Checkout, process: "subprocess.Popen[str]", seconds: float, status: int = 0
) -> None:
    """Wait for Snakemake to end and assert that it succeeded, or ended with another status.

    Args:
        slurm: cluster of the jobs.
        checkout: copy of the repository in which Snakemake runs.
        process: process of Snakemake; killed in any case.
        seconds: timeout.
        status: expected exit status.
    """
    try:
        slurm.wait("Snakemake is done", lambda: process.poll() is not None, seconds=seconds)
    except TimeoutError as error:
        error.add_note(
            slurm.run("sinfo", "-N", "-l") + slurm.run("squeue", "-a", "-l") + last_words(checkout)
        )
        raise
    finally:
        process.kill()
    assert process.returncode == status, last_words(checkout)


def last_words(checkout: Checkout) -> str:
    """Return the last 3000 characters of Snakemake's output."""
    return (checkout.folder / "snakemake.log").read_text()[-3000:]


def edit(checkout: Checkout, name: str, **changes: object) -> dict[str, object]:
    """Write the default experiment with a new name and changed top-level keys to NAME.yaml; return its settings."""
    settings = yaml.safe_load((checkout.folder / "config/config.yaml").read_text()) | {"name": name} | changes
    (checkout.folder / f"{name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return settings


def undisturbed(checkout: Checkout, name: str) -> bytes:
    """Train the same experiment on this machine without Slurm; return the bytes of the weights."""
    subprocess.run(
        [NNLO, "run", f"{name}.yaml", "--set", "name=undisturbed"], cwd=checkout.folder, env=environment(),
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    return (checkout.folder / "results/undisturbed/allreduce/seed-1/model.safetensors").read_bytes()


@dataclass(frozen=True)
class Submitted:
    """The training `allreduce` with one seed of the experiment `name` as a job of a cluster; `epochs`: its epochs."""

    slurm: Slurm
    checkout: Checkout
    name: str
    epochs: int
    seed: int = 1
    _snakemakes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.checkout.folder / f"results/{self.name}/allreduce/seed-{self.seed}"

    @property
    def log(self) -> Path:
        """Log of the job's command."""
        return self.checkout.folder / f"logs/{self.name}/allreduce/seed-1/train.log"

    def start(self, all_seeds: bool = False, **variables: str) -> "subprocess.Popen[str]":
        """Start Snakemake with the training as target, without evaluation and report.

        Args:
            all_seeds: the trainings with all seeds are targets.
            **variables: further environment variables.
        """
        options = self.options(all_seeds)
        self._snakemakes.append(start(self.slurm, self.checkout, *options, variables=variables))
        return self._snakemakes[-1]

    def options(self, all_seeds: bool = False) -> list[str]:
        """Return the options of Snakemake for the training, or for the trainings with all seeds."""
        summary = str((self.folder / "summary.json").relative_to(self.checkout.folder))
        return [*(["--until", "train"] if all_seeds else [summary]), "--configfile", f"{self.name}.yaml"]

    def finish(self, process: "subprocess.Popen[str]", status: int = 0) -> None:
        finish(self.slurm, self.checkout, process, seconds=900, status=status)

    @contextmanager
    def held(self, epochs: int = 2, launcher: bool = False) -> Iterator[list[int]]:
        """Suspend the ranks after some epochs, so that the training does not end inside the `with` block.

        Args:
            epochs: number of epochs after which the ranks are suspended.
            launcher: suspend the launcher, too.

        Yields:
            The ids of the suspended processes.
        """
        self.slurm.wait(f"{epochs} epochs are done", lambda: self.epochs_done >= epochs)
        ranks = (self.folder / "state/ranks").glob("[0-9]")
        pids = [json.loads(path.read_text())["pid"] for path in ranks]
        pids += [self.launcher] if launcher else []
        _signal(pids, signal.SIGSTOP)
        try:
            yield pids
        finally:
            _signal(pids, signal.SIGCONT)  # Slurm, too, continues processes before it terminates a job

    def wait_for_signal(self, pids: list[int]) -> None:
        """Wait until Slurm has signaled suspended processes, which may be seconds after the controller's decision."""
        self.slurm.wait("Slurm signals the job", lambda: _is_signalled(pids))

    @property
    def epochs_done(self) -> int:
        history = self.folder / "state/history.jsonl"
        return history.read_text().count("\n") if history.exists() else 0

    @property
    def attempts(self) -> list[dict[str, object]]:
        return self.rows("attempts")

    @property
    def reasons(self) -> list[object]:
        return [attempt["reason"] for attempt in self.attempts]

    @property
    def reasons_of_training(self) -> list[object]:
        """Reasons without the attempts that had no step to train.

        They occur because Snakemake deletes the output of a job that is preempted as it ends.
        """
        return [each["reason"] for each in self.attempts if not finished_again(each)]

    @property
    def jobs(self) -> list[object]:
        return [attempt["job"] for attempt in self.attempts]

    @property
    def job(self) -> str:
        """Number of the job that trains, or of the last job that trained."""
        return str(self._lease.get("job") or self.jobs[-1])

    @property
    def launcher(self) -> int:
        """Process id of the launcher."""
        return int(self._lease["pid"])

    @property
    def is_running(self) -> bool:
        return self._asked("%T") == "RUNNING"

    @property
    def gives_way(self) -> bool:
        """Whether the job is being preempted; a job with grace time still runs for a while."""
        return not self.is_running or "PreemptTime=None" not in self.slurm.run(
            "scontrol", "show", "job", self.job
        )

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
        """Number of resubmissions by Snakemake."""
        return self.terminal.count("Trying to restart job")

    @property
    def terminal(self) -> str:
        """The output of Snakemake."""
        return (self.checkout.folder / "snakemake.log").read_text()

    @property
    def submissions(self) -> int:
        """Number of calls of sbatch by Snakemake."""
        return calls(self.slurm.folder, "sbatch", self.checkout.folder)

    @property
    def said(self) -> str:
        """The logs of all its jobs."""
        logs = (self.checkout.folder / ".snakemake/slurm_logs").rglob("*.log")
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def rows(self, name: str) -> list[dict[str, object]]:
        path = self.folder / f"state/{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def abandon(self) -> None:
        """Kill all Snakemake processes of the training and cancel their jobs."""
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


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_signalled(pids: list[int]) -> bool:
    """Return True if one of some suspended processes has a pending signal, runs, or has ended."""
    return any(_has_moved(Path(f"/proc/{pid}/status")) for pid in pids)


def _has_moved(status: Path) -> bool:
    try:
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return True
    return "T" not in fields["State"].split()[0] or any(int(fields[key], 16) for key in ("SigPnd", "ShdPnd"))


def finished_again(attempt: dict[str, object]) -> bool:
    """Return True if an attempt finished without training a step."""
    return attempt["reason"] == "finished" and attempt["from"] == attempt["reached"]


def assert_undisturbed(run: Submitted, weights: bytes) -> None:
    """Assert that a training ended with the weights of an undisturbed training and without repeated work.

    Args:
        run: the training, which has ended.
        weights: bytes of the model file of the undisturbed training.
    """
    assert (run.folder / "model.safetensors").read_bytes() == weights
    epochs = range(1, run.epochs + 1)
    assert [row["epoch"] for row in run.rows("history")] == list(epochs)
    ledger = [(row["epoch"], row["missed"], row["repeated"]) for row in run.rows("ledger")]
    assert ledger == [(epoch, 0, 0) for epoch in epochs]
    for before, after in pairwise(run.attempts):
        assert after["from"] == before["saved"], "work was lost"
        assert before["ended"] <= after["started"], "two trained at once"
