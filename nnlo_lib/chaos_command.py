"""`nnlo chaos`: train undisturbed, then under random faults, and compare bit for bit."""

import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from nnlo_lib.algorithms.build import roles
from nnlo_lib.chaos.attempt import SAID, UnfinishedError, attempt
from nnlo_lib.chaos.report import Times, findings, table
from nnlo_lib.chaos.storm import Storm
from nnlo_lib.config import Experiment, Job
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import Plan
from nnlo_lib.launch.standing import standing
from nnlo_lib.single import prepare
from nnlo_lib.train.data import TrainingData
from nnlo_lib.train.faults import places
from nnlo_lib.train.task import Task

SAVES = 4  # checkpoints from fault to fault, about
PATIENCE = 300.0  # seconds for an attempt, beside what the whole training takes


def chaos(experiment: Experiment, name: str, seed: int, faults: int, launcher: str) -> int:
    """Train one run twice; print what it went through and what came of it; return 1 if anything is wrong, else 0.

    faults: that strike the second time, drawn from `seed`.
    """
    calm, wild = (_task(experiment, name, suffix, faults) for suffix in ("undisturbed", "chaos"))
    undisturbed = _train(calm, launcher)
    steps = standing(calm.state)[2]
    storm = Storm(wild, launcher, seed, steps, _places(calm), PATIENCE + 3 * undisturbed)
    started = time.monotonic()
    try:
        with tqdm(total=faults, unit=" faults", desc=f"chaos, seed {seed}", file=sys.stderr) as bar:
            storm.rage(faults, bar.update)
    except UnfinishedError as error:
        print(f"FAILED: {error}")
        return 1
    found = list(findings(wild, calm))
    times = Times(undisturbed, time.monotonic() - started)
    print(*table(storm.suffered, wild, steps, times), *found, sep="\n")
    return int(any(finding.status == "FAILED" for finding in found))


def _train(task: Task, launcher: str) -> float:
    """Train undisturbed; return the seconds that it took."""
    started = time.monotonic()
    if attempt(task, launcher, [], None):
        raise UserError(f"{task.folder} cannot be trained even undisturbed; see {task.folder / SAID}")
    return time.monotonic() - started


def _task(experiment: Experiment, name: str, suffix: str, faults: int) -> Task:
    """Return the training of a run in a folder of its own, with nothing in it, that is saved between faults."""
    plan = Plan.of(experiment)
    run, manifest = plan.run(name), Path(plan.manifest(name))
    if not manifest.exists():
        prepare(run.data, manifest.parent)
    seed, fold = experiment.seeds[0], 0 if experiment.folds > 1 else None
    title = f"{experiment.name}-{suffix}"
    folder = Path("results", title, Job(run=name, seed=seed, fold=fold).path)
    shutil.rmtree(folder, ignore_errors=True)
    task = Task(title, name, run, seed, fold, experiment.folds, manifest, folder)
    return task if run.checkpoint.steps else _saved_often(task, faults)


def _saved_often(task: Task, faults: int) -> Task:
    """Save so often that a training gets on between faults."""
    workers = roles(task.run, task.run.parallel.ranks).count("worker")
    steps = TrainingData(task, workers).loader(0).steps_per_epoch * task.run.train.epochs
    every = f"{max(1, steps // (SAVES * (faults + 1)))} steps"
    checkpoint = task.run.checkpoint.model_copy(update={"every": every})
    return replace(task, run=task.run.model_copy(update={"checkpoint": checkpoint}))


def _places(task: Task) -> list[Counter[str]]:
    """Return what each process of a training that has ended reached; simulated ranks are one process."""
    parallel = task.run.parallel
    return [
        places(task.folder, rank)
        for rank in range(1 if parallel.transport == "simulated" else parallel.ranks)
    ]
