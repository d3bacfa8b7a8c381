"""Trainings by `snakemake --profile lsf` keep their weights after a warning, a suspension, the loss of a host and bkill."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest
import yaml
from helpers.lsf_cluster import TIMEOUT_S, Lsf
from helpers.repository_copy import Checkout, copy_checkout
from helpers.training_process import wait
from job import Job

pytestmark = [pytest.mark.snakemake, pytest.mark.timeout(2 * TIMEOUT_S)]

LIMIT = 30  # time limit of the jobs in minutes
PEER_TIMEOUT_S = 20  # on a busy machine ranks sent no message for 6 s
EXPERIMENT = {
    "name": "lsf",
    "seeds": [1],
    "parallel": {"ranks": 2, "peer_timeout": PEER_TIMEOUT_S},
    "model": {"name": "simplecnn"},
    "algorithm": {"name": "allreduce"},
    "train": {"epochs": 40, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}},
    "checkpoint": {"every": "1 epoch"},
    "resources": {"runtime": LIMIT, "mem_mb": 1000},
}


def suspend(job: Job) -> None:
    """Suspend a job for longer than the peer timeout of its ranks."""
    job.suspend()
    Timer(PEER_TIMEOUT_S + 2, job.resume).start()


# What happens to a training after two epochs.
DISTURBANCES: dict[str, Callable[[Job], object]] = {
    "undisturbed": lambda job: None,
    "warned": lambda job: job.pass_minutes(LIMIT - 2),
    "canceled": Job.cancel,
    "bereft": Job.lose_host,
    "suspended": suspend,
}


@dataclass(frozen=True)
class Workflow:
    """Equal trainings of one checkout, each disturbed in another way."""

    lsf: Lsf
    checkout: Checkout

    def file(self, run: str, name: str) -> Path:
        return self.checkout.folder / f"results/lsf/{run}/seed-1/{name}"

    def jobs(self, run: str) -> list[Job]:
        """Return the LSF jobs of the training of a run."""
        return self.lsf.jobs(f"rule_train:run={run},")

    def states(self, run: str) -> list[str]:
        return [job.state for job in self.jobs(run)]

    def has_trained(self, run: str, epochs: int) -> bool:
        path = self.file(run, "state/history.jsonl")
        return path.exists() and path.read_text().count("\n") >= epochs

    def resumes(self, run: str) -> int:
        return self.file(run, "log.txt").read_text().count("resumed at epoch")

    @property
    def output(self) -> str:
        return (self.checkout.folder / "snakemake.log").read_text()


@pytest.fixture(scope="module")
def workflow(request: pytest.FixtureRequest, lsf: Lsf, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """Run the trainings of the collected tests to the end of one Snakemake; disturb each after two epochs."""
    checkout = copy_checkout(tmp_path_factory.mktemp("clone") / "checkout")
    named = " ".join(test.name for test in request.session.items if test.module is request.module)
    runs = [run for run in DISTURBANCES if run in named or run == "undisturbed"]
    (checkout.folder / "lsf.yaml").write_text(
        yaml.safe_dump(EXPERIMENT | {"runs": {run: {} for run in runs}})
    )
    workflow, waiting = Workflow(lsf, checkout), set(runs)
    targets = [f"results/lsf/{run}/seed-1/evaluation.json" for run in runs]
    # The option does not change the first status check, which is after two seconds.
    often = ("--seconds-between-status-checks", "1")
    process = lsf.start_snakemake(checkout.folder, "--configfile", "lsf.yaml", *often, *targets)

    def all_are_disturbed() -> bool:
        for run in list(waiting):
            if workflow.has_trained(run, epochs=2):
                DISTURBANCES[run](workflow.jobs(run)[0])
                waiting.remove(run)
        return not waiting or process.poll() is not None

    try:
        wait("all trainings are disturbed", all_are_disturbed, TIMEOUT_S)
    finally:
        status = lsf.finish(process)
    assert (status, waiting) == (int("canceled" in runs), set()), workflow.output[-3000:]
    return workflow


@pytest.mark.real
def test_ranks_are_asked_for_as_slots_with_a_warning_before_the_limit(workflow: Workflow) -> None:
    (job,) = workflow.jobs("undisturbed")
    assert job.state == "DONE"
    assert json.loads(workflow.file("undisturbed", "summary.json").read_text())["ranks"] == 2
    expected = {"n": "2", "P": "mine", "q": "normal", "W": LIMIT, "r": True, "wa": "URG", "wt": 2}
    assert {key: job.request[key] for key in expected} == expected
    assert job.request["R"][-1] == "span[ptile=32]"


@pytest.mark.real
def test_a_warned_training_saves_and_resumes_as_another_job(workflow: Workflow) -> None:
    assert workflow.states("warned") == ["EXIT", "DONE"]
    assert "stopped and saved" in workflow.jobs("warned")[0].log.read_text()
    assert workflow.resumes("warned") == 1
    assert_same_weights(workflow, "warned")


@pytest.mark.real
def test_a_canceled_training_is_not_submitted_again(workflow: Workflow) -> None:
    (job,) = workflow.jobs("canceled")
    assert (job.state, job.exit_reason.partition(":")[0]) == ("EXIT", "TERM_OWNER")
    assert workflow.output.count("canceled; run the same command again to resume") == 1
    assert not workflow.file("canceled", "model.safetensors").exists()


@pytest.mark.exhaustive
def test_a_training_suspended_for_longer_than_its_peer_timeout_goes_on(workflow: Workflow) -> None:
    assert (workflow.states("suspended"), workflow.resumes("suspended")) == (["DONE"], 0)
    assert_same_weights(workflow, "suspended")


@pytest.mark.exhaustive
def test_a_training_bereft_of_its_host_resumes_under_its_number(workflow: Workflow) -> None:
    assert (workflow.states("bereft"), workflow.resumes("bereft")) == (["DONE"], 1)
    assert_same_weights(workflow, "bereft")


def assert_same_weights(workflow: Workflow, run: str) -> None:
    weights = [workflow.file(name, "model.safetensors").read_bytes() for name in ("undisturbed", run)]
    assert weights[0] == weights[1]
