"""Raw files of a search, read with the standard library, and the values of its trials."""

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from helpers.recomputation.quantity import Spread

Task = tuple[int, int, int]  # trial, fold, epochs


@dataclass(frozen=True)
class RawTrial:
    """A trial: its point, its decided fold tasks, and the results of these."""

    number: int
    point: dict[str, Any]
    results: dict[Task, dict[str, Any]]
    study: "RawStudy"

    @property
    def failures(self) -> list[str]:
        """Error of each fold task that did not finish, by fold and epochs."""
        return [
            result["error"] for _, result in sorted(self.results.items()) if result["status"] != "finished"
        ]

    @property
    def rungs(self) -> list[int]:
        return sorted({epochs for _, _, epochs in self.results})

    def folds(self, rung: int) -> list[float]:
        """Return the best value of each fold at a rung, in the order of the folds."""
        return [self.study.value(self.results[task]) for task in sorted(self.results) if task[2] == rung]

    def is_complete(self, rung: int) -> bool:
        return len(self.folds(rung)) == self.study.fold_count

    @property
    def last_rung(self) -> int:
        """The highest rung at which all folds have a result."""
        return max(filter(self.is_complete, self.rungs), default=0)

    @property
    def objective(self) -> Spread:
        """Mean over folds at the highest complete rung, and its standard error; NaN if the trial failed."""
        if self.failures or not self.last_rung:
            return Spread(math.nan, math.nan)
        folds = self.folds(self.last_rung)
        error = stdev(folds) / math.sqrt(len(folds)) if len(folds) > 1 else math.nan
        return Spread(fmean(folds), error)

    @property
    def epochs(self) -> int:
        return max(len(result["rows"]) for result in self.results.values())

    @property
    def seconds(self) -> float:
        return sum(map(seconds, self.results.values()))

    @property
    def core_hours(self) -> float:
        return sum(seconds(result) * result["cores"] for result in self.results.values()) / 3600

    def hours_until(self, rung: int) -> float:
        """Return the core hours of all fold tasks of the search that ended before the last fold of a rung, and of it."""
        moment = max(result["ended"] for task, result in self.results.items() if task[2] == rung)
        every = [result for trial in self.study.trials for result in trial.results.values()]
        return sum(seconds(each) * each["cores"] for each in every if each["ended"] <= moment) / 3600

    @property
    def state(self) -> str:
        if self.failures:
            return "failed"
        return "finished" if self.last_rung >= self.study.epochs else "stopped"

    def curve(self) -> list[tuple[float, float]]:
        """Return the mean over folds of the metric at each epoch of the highest rung."""
        values = defaultdict(list)
        for task, result in self.results.items():
            for row in result["rows"] if task[2] == self.rungs[-1] else ():
                values[row["epoch"]].append(row[self.study.metric])
        return [(epoch, fmean(values[epoch])) for epoch in sorted(values)]


def seconds(result: dict[str, Any]) -> float:
    """Return the wall time of a fold task."""
    return float(result["interrupted"] + result["ended"] - result["started"])


@dataclass(frozen=True)
class RawStudy:
    """The folder of a search."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        return json.loads((self.folder / "config.json").read_text())

    @property
    def search(self) -> dict[str, Any]:
        return self.config["search"]

    @property
    def metric(self) -> str:
        return str(self.search["objective"]["metric"])

    @property
    def fold_count(self) -> int:
        return int(self.search["folds"]["k"])

    @property
    def epochs(self) -> int:
        return int(self.config["train"]["epochs"])

    def choices(self, key: str) -> list[Any]:
        """Return the choices of a key that a trial with an objective has, in the order of the file; empty for a range."""
        listed = self.search["space"].get(key, {}).get("choice") or []
        return [value for value in listed if any(trial.point[key] == value for trial in self.ranked)]

    def value(self, result: dict[str, Any]) -> float:
        """Return the value of a fold: its best epoch; the metric is an accuracy."""
        assert (self.search["objective"]["epoch"], self.metric) == ("best", "val_accuracy")
        return max((row[self.metric] for row in result["rows"]), default=math.nan)

    @cached_property
    def trials(self) -> list[RawTrial]:
        """All trials by number."""
        files = sorted((self.folder / "trials").glob("*.json"))
        assert [path.stem for path in files] == [f"{number:04d}" for number in range(len(files))]
        return [self._trial(number, path) for number, path in enumerate(files)]

    def _trial(self, number: int, path: Path) -> RawTrial:
        values, results = json.loads(path.read_text()), {}
        for each in values["decisions"]:
            result = path.with_suffix("") / f"fold-{each['fold']}/epochs-{each['epochs']}.json"
            results[number, each["fold"], each["epochs"]] = json.loads(result.read_text())
        return RawTrial(number, values["point"], results, self)

    @cached_property
    def ranked(self) -> list[RawTrial]:
        """The trials with an objective, the best first; of equal ones, the first."""
        known = [trial for trial in self.trials if not math.isnan(trial.objective.mean)]
        return sorted(known, key=lambda trial: (-trial.objective.mean, trial.number))

    @property
    def best(self) -> RawTrial:
        """The trial with the best mean of any rung that has all folds; the best epoch counts."""
        return self.ranked[0]

    @property
    def tasks(self) -> dict[Task, dict[str, Any]]:
        """The results of all fold tasks in the order of their starts."""
        every = {task: result for trial in self.trials for task, result in trial.results.items()}
        return dict(sorted(every.items(), key=lambda item: (item[1]["started"], item[0])))
