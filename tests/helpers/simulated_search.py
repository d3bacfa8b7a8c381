"""Searches without trainings: formulas of learning curves, workers with a virtual clock, and killed drivers."""

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.study import trial as files
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.study import Study, TrialSampler, run_study
from nnlo_lib.search.study.trial import (
    FoldTask,
    Result,
    SchedulingDecision,
    SearchPoint,
    Trial,
    decisions_in_order,
    read_result,
    read_trial,
    read_trials,
)

SPACE = {"train.optimizer.lr": {"log_uniform": [1e-4, 1.0]}, "train.batch_size": {"choice": [16, 32, 64]}}


class Killed(BaseException):
    """Simulates that the driver is killed."""


def search(**settings: Any) -> SearchConfig:
    """Return a search over SPACE with the given settings."""
    return SearchConfig.model_validate({"space": SPACE, "trials": 12, "parallel": 3} | settings)


def draw(number: int, known: StudySnapshot) -> SearchPoint:
    """Propose a random point that depends only on the search's seed and the trial's number."""
    source = random.Random(f"{known.search.seed}/{number}")
    return {
        "train.optimizer.lr": 10 ** source.uniform(-4, 0),
        "train.batch_size": source.choice([16, 32, 64]),
    }


def near_the_best(number: int, known: StudySnapshot) -> SearchPoint:
    """Propose a point near the best one; it depends on all final values and on the number of pending trials."""
    finals = [known.final_value(trial.number) for trial in known.trials]
    seen = [(each, i) for i, each in enumerate(finals) if each is not None and math.isfinite(each)]
    if not seen:
        return draw(number, known)
    best = known.trials[min(seen)[1]].point
    source = random.Random(f"{number}/{sorted(seen)}/{finals.count(None)}")
    return best | {
        "train.optimizer.lr": min(1.0, max(1e-4, best["train.optimizer.lr"] * 10 ** source.gauss(0, 0.3)))
    }


def limit(point: SearchPoint) -> float:
    """Return the loss in the limit of infinitely many epochs: lowest at lr = 0.01 and batch size 32."""
    return (
        0.1
        + 0.2 * (math.log10(point["train.optimizer.lr"]) + 2) ** 2
        + 0.05 * (point["train.batch_size"] != 32)
    )


def loss(point: SearchPoint, epoch: int, fold: int) -> float:
    """Return the loss after an epoch, with crossing learning curves, a fold-dependent offset and noise per point."""
    luck = random.Random(f"{sorted(point.items())}/{fold}").gauss(0, 0.01)
    slowness = 2 + 0.5 * abs(math.log10(point["train.optimizer.lr"]) + 1)
    return limit(point) + 2 * math.exp(-epoch / slowness) + luck + 0.02 * fold


def seconds(point: SearchPoint, epochs: int) -> float:
    """Return the duration of `epochs` epochs in seconds: batches of 16 take four times as long as batches of 64."""
    return epochs * 60 * 64 / point["train.batch_size"]


@dataclass
class Cluster:
    """Workers with a virtual clock."""

    folder: Path
    workers: int
    jitter: float = 0.0  # standard deviation of the logarithm of durations
    seed: int = 0
    fails: Callable[[FoldTask], bool] = lambda fold_task: False  # returns True for fold tasks that fail
    tick: Callable[[str], None] = lambda what: None  # called at the start and at the end of each fold task
    now: float = 0.0  # virtual time in seconds
    started: Counter[FoldTask] = field(default_factory=Counter)
    _running: list[tuple[float, FoldTask, float]] = field(default_factory=list)

    def start(self, fold_task: FoldTask) -> None:
        self.tick("start")
        assert len(self._running) < self.workers, "more trainings than workers"
        assert read_result(self.folder, fold_task) is None, f"{fold_task} is trained though it has a result"
        point = read_trial(self.folder, fold_task.trial).point
        key = f"Leaf(trial={fold_task.trial}, fold={fold_task.fold}, epochs={fold_task.epochs})"  # Fixed, because the tests' bounds hold for the noise of this key.
        source = random.Random(f"{self.seed}/{key}")
        below = max(
            (e for e in read_trial(self.folder, fold_task.trial).rungs if e < fold_task.epochs), default=0
        )
        lasts = seconds(point, fold_task.epochs - below) * math.exp(source.gauss(0, self.jitter))
        self.started[fold_task] += 1
        heapq.heappush(self._running, (self.now + lasts, fold_task, self.now))

    def wait(self) -> bool:
        self.tick("wait")
        self.now, fold_task, began = heapq.heappop(self._running)
        self._result(fold_task, began).write(self.folder)
        return True

    def _result(self, fold_task: FoldTask, began: float) -> Result:
        point = read_trial(self.folder, fold_task.trial).point
        rows = tuple(
            {"epoch": e, "val_loss": loss(point, e, fold_task.fold), "seconds": seconds(point, e)}
            | {"parameters": point["train.batch_size"]}
            for e in range(1, fold_task.epochs + 1)
        )
        if self.fails(fold_task):
            return Result(
                fold_task, "failed", rows[:1], "loss is no number", began, self.now, cores=2, gpus=1
            )
        return Result(fold_task, "finished", rows, "", began, self.now, cores=2, gpus=1)


def run(
    folder: Path,
    wanted: SearchConfig,
    cluster: Cluster | None = None,
    propose: TrialSampler = draw,
    epochs: int = 9,
) -> Cluster:
    """Run the search to its end; return the workers, by default `wanted.parallel` workers without jitter."""
    cluster = cluster or Cluster(folder, wanted.parallel)
    study = Study(folder, wanted, epochs, propose, wanted.parallel)
    with _watched(study, cluster.tick):
        assert run_study(study, cluster)
    return cluster


def run_killed(
    folder: Path,
    wanted: SearchConfig,
    kills: int,
    seed: int,
    propose: TrialSampler,
    epochs: int = 9,
    **cluster: Any,
) -> int:
    """Run the search to its end; kill the driver and its trainings at random points. Return the number of kills."""
    source, killed = random.Random(seed), 0
    while True:
        fuse = _fuse(source.randint(1, 10) if killed < kills else 0)
        workers = Cluster(
            folder, wanted.parallel, tick=fuse, seed=source.random(), now=1e6 * killed, **cluster
        )
        try:
            run(folder, wanted, workers, propose, epochs)
        except Killed:
            killed += 1
        else:
            return killed


def _fuse(calls: int) -> Callable[[str], None]:
    """Return a function that raises Killed at the call with this number; never for 0."""
    count = itertools.count(1)

    def tick(what: str) -> None:
        if next(count) == calls:
            raise Killed(what)

    return tick


@contextmanager
def _watched(study: Study, tick: Callable[[str], None]) -> Iterator[None]:
    """Call `tick` at each decision, and before and after each file is written."""
    decide, replacing = study.decide, files.atomic_write

    def deciding() -> Any:
        tick("decide")
        return decide()

    @contextmanager
    def writing(path: Path) -> Iterator[Path]:
        with replacing(path) as part:
            yield part
            assert "epochs-" not in path.name or not path.exists(), f"{path} is written twice"
            tick(f"before {path}")
        tick(f"after {path}")

    with (
        mock.patch.object(study, "decide", deciding),
        mock.patch.object(files, "atomic_write", writing),
        mock.patch("os.fsync"),
    ):
        yield


def trial_files(folder: Path) -> dict[str, str]:
    """Return the text of each trial file, by name."""
    return {path.name: path.read_text() for path in sorted((folder / "trials").glob("*.json"))}


def epochs_trained(folder: Path) -> int:
    """Return the epochs trained over all folds; the epochs from which a fold task resumes count once."""
    trials = read_trials(folder)
    return sum(max(d.task.epochs for d in trial.decisions if d.task.fold == fold)
               for trial in trials for fold in {d.task.fold for d in trial.decisions})  # fmt: skip


def utilisation(folder: Path, workers: int) -> float:
    """Return the fraction of the workers' time that was spent on training."""
    results = [
        result for d in decisions_in_order(read_trials(folder)) if (result := read_result(folder, d.task))
    ]
    return sum(result.seconds for result in results) / (workers * max(result.ended for result in results))


def made_up(
    wanted: SearchConfig, values: dict[tuple[int, int], list[float | None]], epochs: int = 9
) -> StudySnapshot:
    """Return the snapshot of a study with a loss of each fold, by (trial, epochs); None: pending, inf: failed."""
    trials, results, number = [], {}, 0
    for trial in range(1 + max(trial for trial, _ in values)):
        decisions = []
        for (who, top), folds in values.items():
            for fold, worth in enumerate(folds if who == trial else ()):
                fold_task = FoldTask(trial, fold, top)
                decisions.append(SchedulingDecision(number, fold_task, ()))
                number += 1
                if worth is not None:
                    rows = tuple(
                        {"epoch": e, "val_loss": worth, "seconds": 1.0 * e} for e in range(1, top + 1)
                    )
                    status = "finished" if math.isfinite(worth) else "failed"
                    results[fold_task] = Result(fold_task, status, rows)
        trials.append(Trial(trial, {"train.optimizer.lr": 0.01 / (1 + trial)}, tuple(decisions)))
    return StudySnapshot(wanted, epochs, trials, results)
