"""Synthetic folders of searches, generated from a seed, for tests of their readers."""

import json
import math
from pathlib import Path

import numpy as np

from nnlo_lib.config import Experiment
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial, write_trial

SPACE = {
    "train.optimizer.lr": {"log_uniform": [1e-3, 1e-1]},
    "train.batch_size": {"integer": [8, 64]},
    "algorithm.name": {"choice": ["allreduce", "average"]},
    "algorithm.sync_every": {"choice": [1, 2, 5], "when": {"algorithm.name": "average"}},
}


class MadeUp:
    """Builder of a synthetic search. The value of a trial is near 0.1 + (log10 lr + 2)^2 for all other settings."""

    def __init__(self, root: Path, *, space=None, epochs=9, parallel=4, base=None, **search):
        self.folder = root / "results/made/search"
        self.folder.mkdir(parents=True)
        settings = {"name": "made", "train": {"epochs": epochs}, **(base or {})}
        settings["search"] = {"space": space or SPACE, "parallel": parallel, "trials": 20, **search}
        self.experiment = Experiment.model_validate(settings)
        written = self.experiment.model_dump(mode="json", exclude=self.experiment.problem_default_keys)
        (self.folder / "config.json").write_text(json.dumps(written))
        self.search, self.epochs = self.experiment.search, epochs
        self.trials, self.decisions, self.clock = 0, 0, 1.7e9

    def point(self, rng):
        """Draw a random point of SPACE."""
        name = str(rng.choice(["allreduce", "average"]))
        point = {
            "train.optimizer.lr": float(10 ** rng.uniform(-3, -1)),
            "train.batch_size": int(rng.integers(8, 65)),
            "algorithm.name": name,
        }
        return point | ({"algorithm.sync_every": int(rng.choice([1, 2, 5]))} if name == "average" else {})

    def trial(self, point=None, *, rungs=None, status="finished", error="", worth=None, done=True):
        """Add a trial with all its folds, or with one for each asymptotic loss in `worth`.

        Without a point, it is drawn; `rungs` are the epochs of each rung; without `done`, no fold task has a result.
        """
        rng = np.random.default_rng(self.trials)
        point = self.point(rng) if point is None else point
        rungs = rungs or [self.epochs]
        decisions = []
        for epochs in rungs:
            for fold in range(self.search.folds.k if worth is None else len(worth)):
                fold_task = FoldTask(self.trials, fold, epochs)
                decisions.append(SchedulingDecision(self.decisions, fold_task, ()))
                self.decisions += 1
                if done:
                    value = _worth(point, rng) if worth is None else worth[fold]
                    self._result(fold_task, value, status, error, rng)
        write_trial(self.folder, Trial(self.trials, point, tuple(decisions)))
        self.trials += 1
        return self

    def _result(self, fold_task, value, status, error, rng):
        finished = status == "finished"
        epochs = fold_task.epochs if finished else min(2, fold_task.epochs)
        rows = tuple(_row(epoch, value, self.search.objective) for epoch in range(1, epochs + 1))
        seconds = float(epochs * rng.uniform(0.8, 1.2))
        slot = self.decisions % self.search.parallel
        started = self.clock + (self.decisions // self.search.parallel) * 1.3 * fold_task.epochs + 0.01 * slot
        rows = rows if status != "unwanted" else ()
        Result(fold_task, status, rows, error, started, started + seconds, cores=2).write(self.folder)


def _worth(point, rng):
    lr = point.get("train.optimizer.lr", 1e-2)
    return 0.1 + (math.log10(lr) + 2) ** 2 + 0.01 * abs(rng.normal())


def _row(epoch, value, objective):
    loss = value + math.exp(-epoch / 2)
    return {
        "epoch": epoch, "seconds": 1.0 * epoch, "train_loss": loss, "val_loss": loss, "val_accuracy": math.exp(-loss),
    }  # fmt: skip
