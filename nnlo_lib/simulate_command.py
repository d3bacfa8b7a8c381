"""Run an experiment on the virtual machine and say how long, in virtual time, and at what cost in bytes."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.config import Experiment, Job
from nnlo_lib.config.measures import column
from nnlo_lib.config.stopping import better_of
from nnlo_lib.errors import UserError
from nnlo_lib.single import run_one

Row = dict[str, str]
HEADINGS = ("run", "ranks", "final", "time to target", "bytes to target", "time", "bytes", "messages", "wait")


@dataclass(frozen=True)
class Outcome:
    """What became of one run: its history, row by row, and its summary."""

    name: str
    history: list[Row]
    summary: dict[str, object]

    def best(self, metric: str) -> float:
        """Return the best value of a metric that was ever measured."""
        return _best(metric, [float(row[metric]) for row in self.history])

    def reached(self, metric: str, target: float) -> Row | None:
        """Return the first row in which a metric is as good as the target."""
        values = [(row, float(row[metric])) for row in self.history]
        return next((row for row, value in values if _best(metric, [value, target]) == value), None)


def simulate(experiment: Experiment, names: Sequence[str], seed: int, target: float | None) -> int:
    """Run each of the runs; print time and bytes until the first validation metric is `target`, in virtual time.

    Without a target it is the best that all runs reach. Of folds, the first is run.
    """
    metric = f"val_{column(next(iter(experiment.metrics), 'loss'))}"
    _refuse_unmeasured(experiment, names, metric)
    outcomes, fold = [], 0 if experiment.folds > 1 else None
    for name in names:
        status = run_one(experiment, name, seed, fold, "mpiexec")
        if status:
            return status
        outcomes.append(
            _outcome(Path("results", experiment.name, Job(run=name, seed=seed, fold=fold).path), name)
        )
    bests = [outcome.best(metric) for outcome in outcomes]
    goal = _best(metric, bests, worst=True) if target is None else target
    print(f"\nvirtual time until {metric} is {goal:.4f}; bytes and messages of all ranks together\n")
    print("\n".join(_table([HEADINGS, *(_cells(outcome, metric, goal) for outcome in outcomes)])))
    return 0


def _refuse_unmeasured(experiment: Experiment, names: Sequence[str], metric: str) -> None:
    """Refuse runs that would end without the metric that all are compared by."""
    for name in names:
        run = experiment.variants[name]
        if run.data.validation == 0 and experiment.folds == 1:
            raise UserError(f"nothing is validated in {name}: set data.validation")
        if metric.removeprefix("val_") not in run.measured:
            raise UserError(
                f"{name} does not measure {metric}, by which runs are compared: add it to metrics"
            )


def _best(metric: str, values: Sequence[float], worst: bool = False) -> float:
    """Return the best of some values of a metric, or the worst."""
    return max(values) if (better_of(metric) == "larger") != worst else min(values)


def _outcome(folder: Path, name: str) -> Outcome:
    with (folder / "history.csv").open(newline="") as file:
        return Outcome(name, list(csv.DictReader(file)), json.loads((folder / "summary.json").read_text()))


def _cells(outcome: Outcome, metric: str, target: float) -> tuple[str, ...]:
    summary, last, reached = outcome.summary, outcome.history[-1], outcome.reached(metric, target)
    seconds, messages = summary["seconds"], summary["messages_sent"]
    assert isinstance(seconds, dict)
    assert isinstance(messages, dict)
    return (
        outcome.name,
        str(summary["ranks"]),
        f"{float(last[metric]):.4f}",
        f"{float(reached['seconds']):.2f} s" if reached else "never",
        _bytes(reached["bytes"]) if reached else "-",
        f"{float(last['seconds']):.2f} s",
        _bytes(last["bytes"]),
        f"{sum(messages.values()):,}",
        f"{seconds['wait'] / seconds['total']:.0%}",
    )


def _bytes(count: str) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
