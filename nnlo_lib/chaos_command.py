"""`nnlo chaos`: train undisturbed, then under random faults, and compare bit for bit."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from nnlo_lib.algorithms.build import roles
from nnlo_lib.chaos.attempt import SAID, HangError, attempt
from nnlo_lib.chaos.comparison import differences
from nnlo_lib.chaos.storm import Storm
from nnlo_lib.config import Experiment, Job, Run
from nnlo_lib.config.validity import needs
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import Plan
from nnlo_lib.single import prepare
from nnlo_lib.state.attempts import standing
from nnlo_lib.state.tally import Tally
from nnlo_lib.train.data import TrainingData
from nnlo_lib.train.faults import Fault, places
from nnlo_lib.train.task import Task
from nnlo_lib.verify.files import checkpoints, outputs
from nnlo_lib.verify.finding import Finding, failed, note, ok
from nnlo_lib.verify.finished import Finished
from nnlo_lib.verify.history import history
from nnlo_lib.verify.ledger import ledger

SAVES = 4  # checkpoints from fault to fault, about
PATIENCE = 300.0  # seconds for an attempt, beside what the whole training takes
NAMES = {
    "kill": "kill -9 of a rank",
    "kill_launcher": "kill -9 of the launcher",
    "term": "SIGTERM to a rank",
    "term_all": "SIGTERM to all ranks",
    "torn": "file of a checkpoint cut short",
    "flipped": "bit of a checkpoint changed",
    "full": "disk full at a checkpoint",
}


def chaos(experiment: Experiment, name: str, seed: int, faults: int, launcher: str) -> int:
    """Train one run twice; print what it went through and what came of it; return 1 if anything is wrong, else 0.

    faults: that strike the second time, drawn from `seed`.
    """
    calm, wild = (_task(experiment, name, suffix, faults) for suffix in ("undisturbed", "chaos"))
    started = time.monotonic()
    if attempt(calm, launcher, [], None):
        raise UserError(f"{calm.folder} cannot be trained even undisturbed; see {calm.folder / SAID}")
    undisturbed = time.monotonic() - started
    steps = standing(calm.state)[2]
    storm = Storm(wild, launcher, seed, steps, _places(calm), PATIENCE + 3 * undisturbed)
    started = time.monotonic()
    try:
        with tqdm(total=faults, unit=" faults", desc=f"chaos, seed {seed}", file=sys.stderr) as bar:
            storm.rage(faults, bar.update)
    except HangError as error:
        print(failed(str(error)))
        return 1
    findings = list(_findings(calm, wild))
    print(*_report(storm.suffered, wild, steps, time.monotonic() - started, undisturbed), sep="\n")
    print(*findings, sep="\n")
    return int(any(finding.status == "FAILED" for finding in findings))


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
    return [places(task.folder, rank) for rank in range(1 if parallel.transport == "simulated" else parallel.ranks)]


def _findings(calm: Task, wild: Task) -> Iterator[Finding]:
    run = Finished.load(wild.folder)
    yield from outputs(run)
    yield from checkpoints(run)
    yield from history(run)
    yield from ledger(run)
    if reason := _chance(wild.run):
        yield note(f"bits cannot be compared with those of the undisturbed training: {reason}")
    elif found := differences(wild.folder, calm.folder):
        yield failed(f"differs from the undisturbed training: {', '.join(found)}")
    else:
        yield ok(
            "weights, history and the last state of every rank, optimizer included, are those of the undisturbed "
            "training, bit for bit"
        )


def _chance(run: Run) -> str:
    """Return why two trainings may differ, empty if they may not."""
    algorithm = run.algorithm
    if needs(algorithm).asynchronous and not getattr(algorithm, "synchronous", False):
        return f"the ranks of {algorithm.name} do not wait for each other"
    if getattr(algorithm, "reduction", "") == "fastest":
        return "with algorithm.reduction fastest, MPI chooses the order in which gradients are added"
    return ""


def _report(faults: list[Fault], task: Task, steps: int, seconds: float, undisturbed: float) -> Iterator[str]:
    """Yield the lines of the table."""
    tally = Tally.read(task.state, Finished.load(task.folder).summary)
    assert tally is not None, "a launcher keeps a record"
    kinds = Counter(fault.action for fault in faults)
    yield from (f"  {NAMES[kind]:<32}{count:>8,}" for kind, count in kinds.most_common())
    yield f"  {'faults':<32}{len(faults):>8,}"
    yield f"  {'attempts':<32}{len(tally.attempts):>8,}"
    yield f"  {'steps':<32}{steps:>8,}"
    yield f"  {'steps lost':<32}{tally.lost_steps:>8,}"
    yield f"  {'seconds':<32}{seconds:>8,.0f}"
    yield f"  {'seconds undisturbed':<32}{undisturbed:>8,.0f}"
    yield f"  {'seconds per fault':<32}{(seconds - undisturbed) / len(faults):>8.2f}"
