"""`snakemake --profile slurm` in a clone: two trainings on two nodes, one preempted and one canceled, and a search."""

import csv
import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import pytest
from helpers.repository_copy import Checkout, copy_checkout, environment
from helpers.slurm_cluster import Slurm
from helpers.slurm_stories import (
    NNLO,
    RESOURCES,
    TRAINING,
    Clone,
    Prepared,
    Submitted,
    assert_trained_once,
    edit,
    finished_again,
    held,
    preempt,
)

# The first test waits for the cluster and for the whole workflow, on a busy machine several times as long.
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(2400)]

WIDTHS, UNLUCKY, PARALLEL = [4, 8, 13, 32], 13, 32
MODEL = f"""
from torch import nn


def build(shape, classes, width):
    if width == {UNLUCKY}:
        raise RuntimeError("an unlucky width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))
"""


@dataclass(frozen=True)
class Workflow:
    """A workflow that was disturbed in its first Snakemake; the second Snakemake wrote the page."""

    preempted: Submitted  # the training that was preempted
    canceled: Submitted  # the training that was canceled
    first_output: str  # output of the first Snakemake
    first_jobs: list[str]  # jobs that the first Snakemake submitted for the canceled training
    canceled_reasons: list[str]  # reasons of the canceled training's attempts under the first Snakemake


@pytest.fixture(scope="module")
def search(
    prepared: Prepared, slurm: Slurm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Clone]]:
    """Return a function that starts a search of two trials, once."""

    begun: list[Clone] = []

    def begin() -> Clone:
        if not begun:
            checkout = prepared.copy(tmp_path_factory.mktemp("search") / "checkout")
            write_search(checkout, [4, PARALLEL], epochs=3)
            begun.append(Clone(slurm, checkout, "tuned"))
            begun[0].start()
        return begun[0]

    yield begin
    for clone in begun:
        clone.abandon()


@pytest.fixture(scope="module")
def workflow(
    request: pytest.FixtureRequest,
    prepared: Prepared,
    slurm: Slurm,
    search: Callable[[], object],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workflow]:
    """Preempt one of two trainings and cancel the other, then run the same command again to the page."""
    checkout = prepared.copy(tmp_path_factory.mktemp("clone") / "checkout")
    edit(checkout, "cluster", **TRAINING | {"seeds": [1, 2], "resources": RESOURCES})
    preempted = Submitted(slurm, checkout, "cluster")
    canceled = replace(preempted, seed=2)
    try:
        preempted.start()
        with held(preempted, canceled) as ranks:
            slurm.run("scancel", canceled.job)
            canceled.wait_for_signal(ranks[2:])
            preempt(preempted, ranks[:2])
        if any("search" in test.name for test in request.session.items if test.module is request.module):
            search()  # in parallel, because both mostly wait
        preempted.finish(status=1)
        seen = preempted.terminal, canceled.submitted, canceled.reasons
        preempted.start()
        preempted.finish()
        yield Workflow(preempted, canceled, *seen)
    finally:
        preempted.abandon()


@pytest.mark.real
def test_two_trainings_on_two_nodes_reach_the_page(workflow: Workflow) -> None:
    results = workflow.preempted.checkout.folder / "results/cluster"
    with (results / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["seed"]) for row in rows] == [("allreduce", "1"), ("allreduce", "2")]
    assert min(float(row["accuracy"]) for row in rows) >= 0.9
    assert (results / "report.html").stat().st_size > 10_000
    jobs = ",".join({*workflow.preempted.jobs, *workflow.canceled.jobs})
    steps = workflow.preempted.slurm.run(
        "sacct", "--noheader", "--format=JobID,NNodes,State", f"--jobs={jobs}"
    )
    ranks = [line.split()[1:3] for line in steps.splitlines() if ".0 " in line]
    assert ranks.count(["2", "COMPLETED"]) >= 2, steps


@pytest.mark.real
def test_a_preempted_training_is_requeued_and_ends_with_the_same_weights(
    prepared: Prepared, workflow: Workflow
) -> None:
    run = workflow.preempted
    assert_trained_once(run, prepared.weights)
    *before, last = run.reasons_of_training
    assert (set(before), last) == ({"preempted"}, "finished")
    assert len(set(run.jobs)) == 1
    assert run.retries == 0


@pytest.mark.real
def test_a_canceled_training_is_resumed_only_by_the_same_command(workflow: Workflow) -> None:
    assert "ended as CANCELLED: canceled; run the same command again to resume" in workflow.first_output
    assert workflow.first_jobs == workflow.canceled.jobs[:1]
    assert workflow.canceled_reasons == ["canceled"]
    assert workflow.canceled.reasons == ["canceled", "finished"]
    assert_trained_once(workflow.canceled)


def write_search(checkout: Checkout, widths: list[int], epochs: int) -> None:
    """Write a search for the width of a model, tuned.yaml; trials of the width PARALLEL have two ranks."""
    (checkout.folder / "model.py").write_text(MODEL)
    space = {
        "model.args.width": widths,
        "parallel.ranks": {"choice": [2], "when": {"model.args.width": [PARALLEL]}},
    }
    edit(
        checkout, "tuned", seeds=[1], runs={}, model={"name": "model.py:build", "args": {"width": 4}},
        train={"epochs": epochs, "batch_size": 16}, parallel={"ranks": 1}, checkpoint={"every": "1 epoch"},
        resources={"mem_mb": 1000, "runtime": 10},
        search={"space": space, "method": {"name": "grid"}, "trials": len(widths), "parallel": 4, "folds": {"k": 2}},
    )  # fmt: skip


def attempts(trial: Path) -> list[dict[str, object]]:
    paths = trial.glob("fold-*/state/attempts.jsonl")
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def assert_searched(folder: Path, widths: list[int]) -> None:
    """Assert that each trial has the objective of its two folds, except the unlucky one, and that the best is trained."""
    with (folder / "search/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["model.args.width"]) for row in rows) == widths
    for row in rows:
        trial, width = folder / f"search/trials/{int(row['trial']):04d}", int(row["model.args.width"])
        assert {each["ranks"] for each in attempts(trial)} == {2 if width == PARALLEL else 1}
        if width == UNLUCKY:
            assert row["status"] == "failed"
            assert "an unlucky width" in row["error"]
            continue
        losses = [
            min(json.loads(line)["val_loss"] for line in history.read_text().splitlines())
            for history in trial.glob("fold-*/state/history.jsonl")
        ]
        assert (row["status"], len(losses)) == ("finished", 2)
        assert float(row["objective"]) == pytest.approx(fmean(losses), rel=1e-12)
        trained = [each["reason"] for each in attempts(trial) if not finished_again(each)]
        assert trained.count("finished") == 2
    best = min((row for row in rows if row["status"] == "finished"), key=lambda row: float(row["objective"]))
    summary = json.loads((folder / "best/seed-1/summary.json").read_text())
    assert summary["config"]["model"]["args"]["width"] == int(best["model.args.width"])
    assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.real
def test_a_search_trains_two_folds_of_two_trials(slurm: Slurm, search: Callable[[], Clone]) -> None:
    (clone := search()).finish()
    assert_searched(clone.checkout.folder / "results/tuned", [4, PARALLEL])


@dataclass(frozen=True)
class FoldTask(Submitted):
    """First fold of a trial of the search `name`."""

    trial: int = 0

    @property
    def folder(self) -> Path:
        return self.checkout.folder / f"results/{self.name}/search/trials/{self.trial:04d}/fold-0"


@pytest.mark.exhaustive
def test_a_search_with_a_preempted_and_a_failing_trial(slurm: Slurm, checkout: Checkout) -> None:
    slurm.wait("all nodes are idle", slurm.idle)
    write_search(checkout, WIDTHS, epochs=20)
    run, trials = FoldTask(slurm, checkout, "tuned"), checkout.folder / "results/tuned/search/trials"
    try:
        run.start()
        slurm.wait("two trials are begun", lambda: len(list(trials.glob("*.json"))) >= 2)
        first = json.loads(min(trials.glob("*.json")).read_text())["point"]["model.args.width"]
        run = replace(run, trial=int(first == UNLUCKY))
        with held(run) as ranks:
            preempt(run, ranks, run.shown("%B"))
        run.finish()
    finally:
        run.abandon()
    assert run.reasons_of_training == ["preempted", "finished"]
    assert len(set(run.jobs)) == 1
    assert_searched(checkout.folder / "results/tuned", WIDTHS)


@pytest.mark.exhaustive
def test_a_clone_and_an_experiment_with_spaces_and_quotes_in_their_names(
    slurm: Slurm, tmp_path: Path
) -> None:
    checkout = copy_checkout(tmp_path / "a b'c;é")
    edit(checkout, "cluster", seeds=[1], resources={"mem_mb": 1000, "runtime": 10})
    file = (checkout.folder / "cluster.yaml").rename(checkout.folder / "my 'own' (1).yaml")
    (clone := Clone(slurm, checkout, file.stem)).start()
    clone.finish()
    assert (checkout.folder / "results/cluster/report.html").stat().st_size > 10_000


@pytest.mark.exhaustive
def test_jobs_of_an_interactive_session(prepared: Prepared, slurm: Slurm, tmp_path: Path) -> None:
    """A job inherits the requests of the session that submits it; two trials in one session share its memory and GPUs."""
    slurm.wait("all nodes are idle", slurm.idle)
    checkout = prepared.copy(tmp_path / "checkout")
    edit(checkout, "asked", parallel={"ranks": 2}, train={"epochs": 1, "batch_size": 256})
    shell = (
        environment()
        | slurm.environment
        | {"PATH": f"{NNLO.parent}:{slurm.environment.get('PATH', environment()['PATH'])}"}
    )

    def inside(*session: str) -> str:
        done = subprocess.run(
            ["salloc", "-t10", *session],
            cwd=checkout.folder,
            env=shell,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        return done.stdout + done.stderr

    job = [
        "sbatch",
        "-W",
        "-n2",
        "--mem=1500",
        "-o",
        "log.txt",
        "--wrap",
        "nnlo run asked.yaml --launcher 'srun --mpi=pmi2'",
    ]
    inside("-n1", "--mem-per-cpu=300", "--gpus=1", "--cpus-per-gpu=1", *job)
    log = (checkout.folder / "log.txt").read_text()
    assert "results in results/asked/" in log
    assert "mutually exclusive" not in log
    assert "GRES" not in log
    write_search(checkout, [4, PARALLEL], epochs=1)
    found = inside(
        "-n2", "-c1", "--mem=1500", "nnlo", "search", "tuned.yaml", "--launcher", "srun --mpi=pmi2"
    )
    assert "trials: 2; " in found, found
    # A trial whose step waits for the other trial is healthy.
    assert "failed" not in found


@pytest.mark.real
def test_slurm_says_which_jobs_it_would_refuse(prepared: Prepared, slurm: Slurm, tmp_path: Path) -> None:
    """A partition that `sinfo` hides is as good as any other."""
    checkout = prepared.copy(tmp_path / "checkout")
    slurm.run("scontrol", "create", "PartitionName=secret", "Nodes=n1", "Hidden=YES", "MaxTime=INFINITE")

    def checked(variables: dict[str, str] | None = None, **resources: dict[str, object]) -> str:
        runs = {name: {"parallel": {"ranks": 2}, "resources": each} for name, each in resources.items()}
        edit(checkout, "asked", runs=runs)
        done = subprocess.run(
            [NNLO, "check", "asked.yaml", "--profile", "slurm"], cwd=checkout.folder,
            env=environment() | slurm.environment | (variables or {}), capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    assert "Slurm accepts the jobs" in checked({"SBATCH_QOS": "normal"}, a={"partition": "secret"})
    for variable in (
        "SBATCH_CPUS_PER_GPU=2",
        "SBATCH_SIGNAL=x",
        "SBATCH_CONSTRAINT=abc",
        "SBATCH_RESERVATION=x",
    ):
        name, value = variable.split("=")
        assert f"run a: {variable} of the environment does not go" in (found := checked({name: value}, a={}))
        assert found.endswith(f"; unset {name}\n")
    (line,) = checked(
        a={"partition": "nowhere"}, b={"partition": "secret", "nodes": 2}, c={"mem_mb": 10**6}, d={}
    ).splitlines()[-1:]
    unavailable = "resources.nodes or parallel (Requested node configuration is not available)"
    assert "run a: the partition does not exist or is closed to you: set resources.partition" in line
    assert "run b, run c: no node has" in line
    assert unavailable in line
    assert "run d" not in line
