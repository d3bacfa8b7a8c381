"""Trainings by `snakemake --profile lsf` keep their weights after a warning, a suspension or the loss of a host."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from helpers.lsf_cluster import Lsf
from helpers.repository_copy import Checkout, copy_checkout
from helpers.training_process import wait
from job import Job

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
DISTURBED = WARNED, BEREFT, SUSPENDED = "warned", "bereft", "suspended"
LIMIT = 30  # time limit of the jobs in minutes
PEER_TIMEOUT_S = 20  # on a busy machine ranks sent no message for 6 s
SUSPENSION_S = PEER_TIMEOUT_S + 2
EXPERIMENT = {
    "name": "lsf",
    "seeds": [1],
    "parallel": {"ranks": 2, "peer_timeout": PEER_TIMEOUT_S},
    "runs": {name: {} for name in ("undisturbed", *DISTURBED)},
    "model": {"name": "simplecnn"},
    "algorithm": {"name": "allreduce"},
    "train": {"epochs": 40, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}},
    "checkpoint": {"every": "1 epoch"},
    "resources": {"runtime": LIMIT, "mem_mb": 1000},
}


@dataclass(frozen=True)
class Workflow:
    """Equal trainings of one checkout, one for each disturbance."""

    lsf: Lsf
    checkout: Checkout

    def folder(self, run: str) -> Path:
        return self.checkout.folder / f"results/lsf/{run}/seed-1"

    def weights(self, run: str) -> bytes:
        return (self.folder(run) / "model.safetensors").read_bytes()

    def jobs(self, run: str) -> list[Job]:
        """Return the LSF jobs of the training of a run."""
        return self.lsf.jobs(f"rule_train:run={run},")

    @property
    def log(self) -> str:
        """Output of Snakemake."""
        return (self.checkout.folder / "snakemake.log").read_text()

    def epochs_done(self, run: str) -> int:
        path = self.folder(run) / "state/history.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def train_undisturbed(self) -> None:
        """Convert the data and train without LSF."""
        command = [BIN / "nnlo", "run", "lsf.yaml", "--run", "undisturbed"]
        done = subprocess.run(
            command,
            cwd=self.checkout.folder,
            env=self.lsf.environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> "subprocess.Popen[bytes]":
        """Start Snakemake with its output in snakemake.log."""
        command = [BIN / "snakemake", "--profile", "lsf", "--configfile", "lsf.yaml"]
        # The option does not change the first status check, which is after 20 seconds.
        command += ["--seconds-between-status-checks", "1"]
        command += [f"results/lsf/{run}/seed-1/model.safetensors" for run in DISTURBED]
        with (self.checkout.folder / "snakemake.log").open("w") as log:
            return subprocess.Popen(
                command, cwd=self.checkout.folder, env=self.lsf.environment, stdout=log, stderr=log
            )


@pytest.fixture(scope="module")
def workflow(lsf: Lsf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workflow]:
    """Run a workflow to its end in which each training is disturbed in a different way."""
    checkout = copy_checkout(tmp_path_factory.mktemp("clone") / "checkout")
    (checkout.folder / "lsf.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    workflow = Workflow(lsf, checkout)
    workflow.train_undisturbed()
    process = workflow.start()
    try:
        disturb(workflow, process)
        wait("Snakemake is done", lambda: process.poll() is not None, seconds=600)
        assert process.returncode == 0, workflow.log
        yield workflow
    finally:
        process.kill()
        for job in lsf.jobs("rule_train"):
            if job.state not in ("DONE", "EXIT"):
                lsf.run("bkill", job.number)


def disturb(workflow: Workflow, snakemake: "subprocess.Popen[bytes]") -> None:
    """Disturb each training after two epochs."""
    for run in DISTURBED:
        wait("two epochs", lambda run=run: snakemake.poll() is not None or workflow.epochs_done(run) >= 2)
        assert snakemake.poll() is None, workflow.log
        (job,) = workflow.jobs(run)
        assert job.state == "RUN"
        FATES[run](job)


def suspend(job: Job) -> None:
    """Suspend a job for longer than the peer timeout of its ranks."""
    job.suspend()
    end = time.monotonic() + SUSPENSION_S
    wait("the suspension", lambda: time.monotonic() > end)
    job.resume()


FATES = {WARNED: lambda job: job.pass_minutes(LIMIT - 2), BEREFT: Job.lose_host, SUSPENDED: suspend}


@pytest.mark.parametrize("run", DISTURBED)
def test_the_weights_are_those_of_an_undisturbed_training(workflow: Workflow, run: str) -> None:
    assert workflow.weights(run) == workflow.weights("undisturbed")


def test_a_warned_training_saves_and_ends_and_resumes_as_another_job(workflow: Workflow) -> None:
    first, second = workflow.jobs(WARNED)
    assert (first.state, second.state) == ("EXIT", "DONE")
    assert "stopped and saved" in first.log.read_text()
    assert resumed(workflow, WARNED) == 1


def test_a_training_suspended_for_longer_than_its_peer_timeout_just_goes_on(workflow: Workflow) -> None:
    assert [job.state for job in workflow.jobs(SUSPENDED)] == ["DONE"]
    assert resumed(workflow, SUSPENDED) == 0


def test_a_training_whose_host_died_resumes_under_its_number(workflow: Workflow) -> None:
    assert [job.state for job in workflow.jobs(BEREFT)] == ["DONE"]
    assert resumed(workflow, BEREFT) == 1


def resumed(workflow: Workflow, run: str) -> int:
    return (workflow.folder(run) / "log.txt").read_text().count("resumed at epoch")
