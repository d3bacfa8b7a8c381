"""Raw files of trainings, read with the standard library."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, float]


def read_csv(path: Path) -> list[Row]:
    """Return the rows of a table of numbers; empty cells are NaN, other texts stay texts."""
    with path.open(newline="") as file:
        return [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def _number(cell: str) -> Any:
    try:
        return float(cell) if cell else math.nan
    except ValueError:
        return cell


@dataclass(frozen=True)
class Job:
    """The folder of one training."""

    folder: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        return json.loads((self.folder / "evaluation.json").read_text())

    @cached_property
    def history(self) -> list[Row]:
        return read_csv(self.folder / "history.csv")

    @cached_property
    def validations(self) -> list[Row]:
        """Validations before the first step and within epochs."""
        path = self.folder / "validations.csv"
        return read_csv(path) if path.exists() else []

    @cached_property
    def monitor(self) -> list[Row]:
        path = self.folder / "monitor.csv"
        return read_csv(path) if path.exists() else []

    @cached_property
    def sample_metrics(self) -> dict[str, np.ndarray]:
        """Metrics of each test sample."""
        with np.load(self.folder / "sample_metrics.npz") as file:
            return dict(file)

    @cached_property
    def partition(self) -> dict[str, int]:
        """Number of samples of each worker, and of the validation."""
        with np.load(self.folder / "partition.npz") as file:
            return {name: len(file[name]) for name in file}

    @property
    def validation_samples(self) -> int:
        return self.partition["validation"]

    @property
    def training_samples(self) -> int:
        return sum(self.partition.values()) - self.validation_samples

    @property
    def published(self) -> Row:
        """Row of the history at the step of the published weights."""
        step = self.summary["published_step"]
        [row] = [row for row in self.history if row["step"] == step] or self.history[-1:]
        return row

    @cached_property
    def attempts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "state/attempts.jsonl").read_text().splitlines()]

    @property
    def run(self) -> str:
        return str(self.summary["run"])

    @property
    def simulated(self) -> bool:
        return bool(self.summary["config"]["parallel"]["transport"] == "simulated")

    @property
    def name(self) -> str:
        """Seed and fold as a reader names them."""
        fold = self.summary["fold"]
        return f"seed {self.summary['seed']}" + ("" if fold is None else f", fold {fold}")


@dataclass(frozen=True, eq=False)
class Trainings:
    """The trainings of an experiment, in the order of its runs."""

    file: Path
    jobs: list[Job]
    failed: tuple[Path, ...] = ()  # folders of the trainings without results

    @cached_property
    def runs(self) -> dict[str, list[Job]]:
        """Trainings by run, in order."""
        return {
            name: [job for job in self.jobs if job.run == name]
            for name in dict.fromkeys(job.run for job in self.jobs)
        }

    def by_run(self, value: Callable[[Job], float]) -> dict[str, list[float]]:
        """Return the value of each training, by run."""
        return {run: [value(job) for job in jobs] for run, jobs in self.runs.items()}

    @property
    def repetitions(self) -> str:
        """Number of seeds and folds as the page names them."""
        seeds, folds = ({job.summary[key] for job in self.jobs} - {None} for key in ("seed", "fold"))
        return counted(len(seeds), "seed") + (f" × {counted(len(folds), 'fold')}" if folds else "")

    @property
    def accuracy(self) -> bool:
        return "accuracy" in self.jobs[0].evaluation

    @property
    def problem(self) -> str:
        return str(self.jobs[0].summary["config"]["problem"]["name"])

    @property
    def mixed_clocks(self) -> bool:
        """Whether some runs have measured and others virtual seconds."""
        return len({job.simulated for job in self.jobs}) > 1

    def table(self, name: str) -> list[dict[str, str]]:
        """Return the rows of a table beside the page, each cell as text."""
        with (self.file.parent / name).open(newline="") as file:
            return list(csv.DictReader(file))


def counted(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def validations_within(job: Job) -> list[Row]:
    """Return the validations that are not at the end of an epoch, with fractional epochs."""
    ends = [0.0, *(row["step"] for row in job.history)]
    found = []
    for row in job.validations:
        if row["step"] in ends[1:]:
            continue
        below = max(number for number, end in enumerate(ends) if end <= row["step"])
        part = (row["step"] - ends[below]) / (ends[below + 1] - ends[below])
        found.append({**row, "epoch": round(below + part, 9)})
    return found
