"""A search with trials as jobs of a real Slurm: one is preempted, one fails, and trials.csv is right."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest
from helpers.repository_copy import Checkout
from helpers.slurm_cluster import Slurm
from helpers.slurm_runs import Submitted, edit, finished_again, start
from helpers.slurm_scenarios import URGENT

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]

WIDTHS, UNLUCKY, PARALLEL = [4, 8, 13, 32], 13, [32]
MODEL = f"""
from torch import nn


def build(shape, classes, width):
    if width == {UNLUCKY}:
        raise RuntimeError("an unlucky width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))
"""
EXPERIMENT = {
    "seeds": [1],
    "runs": {},
    "model": {"name": "model.py:build", "args": {"width": 4}},
    "train": {"epochs": 20, "batch_size": 16},
    "parallel": {"ranks": 1},
    "checkpoint": {"every": "1 epoch"},
    "resources": {"mem_mb": 1000, "runtime": 10},
    "search": {
        "space": {
            "model.args.width": WIDTHS,
            "parallel.ranks": {"choice": [2], "when": {"model.args.width": PARALLEL}},
        },
        "method": {"name": "grid"},
        "trials": 4,
        "parallel": 4,
        "folds": {"k": 2},
    },
}


@dataclass(frozen=True)
class Searched(Submitted):
    """First fold of a trial of the search `name`, trained by a cluster."""

    trial: int = 0

    @property
    def folder(self) -> Path:
        return self.checkout.folder / f"results/{self.name}/search/trials/{self.trial:04d}/fold-0"


@pytest.fixture(autouse=True)
def _nodes_are_free(slurm: Slurm) -> None:
    """Wait until the jobs of other tests have ended."""
    slurm.wait("all nodes are idle", slurm.idle)


@pytest.fixture
def experiment(checkout: Checkout) -> Checkout:
    (checkout.folder / "model.py").write_text(MODEL)
    edit(checkout, "tuned", **EXPERIMENT)
    return checkout


def widths(search: Path) -> list[int]:
    """Return the width of each trial's model."""
    paths = sorted((search / "trials").glob("*.json"))
    return [json.loads(path.read_text())["point"]["model.args.width"] for path in paths]


def best_losses(trial: Path) -> Iterator[float]:
    """Yield the smallest validation loss in the history of each fold."""
    for history in sorted(trial.glob("fold-*/state/history.jsonl")):
        yield min(json.loads(line)["val_loss"] for line in history.read_text().splitlines())


def attempts(trial: Path) -> list[dict[str, object]]:
    paths = trial.glob("fold-*/state/attempts.jsonl")
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_two_folds_of_four_trials(slurm: Slurm, experiment: Checkout) -> None:
    results = experiment.folder / "results/tuned"
    search = results / "search"
    process = start(slurm, experiment, "--configfile", "tuned.yaml")
    slurm.wait("two trials are begun", lambda: len(widths(search)) >= 2)
    run = Searched(slurm, experiment, "tuned", 20, trial=int(widths(search)[0] == UNLUCKY))
    try:
        with run.held() as ranks:
            slurm.run(*URGENT[:2], "--nodes=1", f"--nodelist={run.batch_host}", *URGENT[3:])
            slurm.wait("the job gives way", lambda: run.gives_way)
            run.wait_for_signal(ranks)
        run.finish(process)
    finally:
        process.kill()
        run.abandon()

    assert run.reasons_of_training == ["preempted", "finished"]
    assert len(set(run.jobs)) == 1
    with (search / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["model.args.width"]) for row in rows) == WIDTHS
    for row in rows:
        trial, width = search / f"trials/{int(row['trial']):04d}", int(row["model.args.width"])
        assert {each["ranks"] for each in attempts(trial)} == {2 if width in PARALLEL else 1}
        if width == UNLUCKY:
            assert row["status"] == "failed"
            assert "an unlucky width" in row["error"]
            continue
        assert row["status"] == "finished"
        assert float(row["objective"]) == pytest.approx(fmean(best_losses(trial)), rel=1e-12)
        trained = [each["reason"] for each in attempts(trial) if not finished_again(each)]
        assert trained.count("finished") == 2
    best = min((row for row in rows if row["status"] == "finished"), key=lambda row: float(row["objective"]))
    summary = json.loads((results / "best/seed-1/summary.json").read_text())
    assert summary["config"]["model"]["args"]["width"] == int(best["model.args.width"])
    assert (results / "report.html").stat().st_size > 10_000
