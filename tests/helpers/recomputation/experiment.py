"""Real experiments on the embedded data sets, and their pages, made by the commands of a user."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from helpers import fork_server
from helpers.recomputation.audited_page import AuditedPage
from helpers.recomputation.raw import Job, Trainings
from helpers.recomputation.search.figures import SEARCH_FIGURES
from helpers.recomputation.search.study import RawStudy
from helpers.recomputation.sections.figures import FIGURES
from helpers.repository_copy import environment

PATIENCE_S = 1000  # one training or search, on a busy machine
Killed = tuple[str, int, int]  # run, seed, and step at which rank 0 is killed


def nnlo(folder: Path, *arguments: str, expect: int = 0, **variables: str) -> str:
    """Run a command in a folder with additional variables of the environment; return its output."""
    done = subprocess.run(
        [fork_server.programs() / "nnlo", *arguments], cwd=folder, env=environment() | {"OMP_NUM_THREADS": "1"} | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stdout[-3000:]
    return done.stdout


def killed_at_step(folder: Path, step: int) -> dict[str, str]:
    """Return the variable of the environment by which rank 0 of a training is killed at a step."""
    fault = {"number": 0, "place": "training.step", "rank": 0, "count": step, "action": "kill"}
    return {"NNLO_FAULTS": json.dumps({"folder": str(folder), "launcher": os.getpid(), "faults": [fault]})}


def audited_experiment(
    folder: Path,
    settings: dict[str, Any],
    killed: "Killed | None" = None,
    failed: "Killed | None" = None,
    absent: Sequence[tuple[str, int]] = (),
) -> AuditedPage[Trainings]:
    """Train the runs, seeds and folds, and write summary, comparisons and page.

    Args:
        folder: empty folder of the experiment.
        settings: content of the experiment file.
        killed: training that is killed once, and then resumed.
        failed: training that is killed, and not resumed.
        absent: run and seed of trainings that are not started.
    """
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    for run, seed, step in filter(None, (killed, failed)):
        options = ("--run", run, "--seed", str(seed))
        nnlo(folder, "run", file.name, *options, expect=1, **killed_at_step(folder, step))
    left_out = {*absent, *([failed[:2]] if failed else [])}
    trained, missing = [], []
    for run, seed, fold in _trainings(settings):
        place = f"results/{settings['name']}/{run}/seed-{seed}" + ("" if fold is None else f"/fold-{fold}")
        (missing if (run, seed) in left_out else trained).append(place)
        if (run, seed) not in left_out:
            which = [] if fold is None else ["--fold", str(fold)]
            nnlo(folder, "run", file.name, "--run", run, "--seed", str(seed), *which)
    _write_tables_and_page(folder, trained, missing)
    raw = Trainings(
        file, [Job(folder / place) for place in trained], tuple(folder / each for each in missing)
    )
    return AuditedPage((folder / "report.html").read_text(), raw, FIGURES)


def _trainings(settings: dict[str, Any]) -> list[tuple[str, int, "int | None"]]:
    folds = range(settings["folds"]) if settings.get("folds", 1) > 1 else [None]
    return [(run, seed, fold) for run in settings["runs"] for seed in settings["seeds"] for fold in folds]


def _write_tables_and_page(folder: Path, trained: list[str], missing: list[str]) -> None:
    tables = ["--output", "summary.csv", "--comparisons", "comparisons.csv"]
    nnlo(folder, "task", "aggregate", *tables, *trained)
    inputs = ["--experiment-file", "experiment.yaml", "--summary", "summary.csv"]
    failed = [word for each in missing for word in ("--failed", each)]
    nnlo(folder, "task", "report", "--output", "report.html", *inputs, *failed, *trained)


def audited_search(folder: Path, settings: dict[str, Any]) -> AuditedPage[RawStudy]:
    """Run a search, which writes its page."""
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    nnlo(folder, "search", file.name)
    study = folder / f"results/{settings['name']}/search"
    return AuditedPage((study / "report.html").read_text(), RawStudy(study), SEARCH_FIGURES)
