"""How fast the trainings of an experiment were so far."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnlo_lib.search.record import Record


def pace_of_trials(record: Record) -> float | None:
    """Return the mean seconds of an epoch of all folds that have ended, starting included; None if there is none."""
    results = [result for result in record.known.results.values() if result.status == "finished"]
    epochs = sum(_own_epochs(record, result.leaf.trial, result.leaf.epochs) for result in results)
    return sum(result.seconds for result in results) / epochs if epochs else None


def pace_of_run(folder: Path) -> float | None:
    """Return the mean seconds of an epoch of the finished jobs of a run; None if there is none."""
    done = list(_summaries(folder))
    epochs = sum(int(summary["epochs"]) for summary in done)
    return sum(float(summary["seconds"]["total"]) for summary in done) / epochs if epochs else None


def pace_of_runs(results: Path) -> float | None:
    """Return that of all runs of an experiment, its best trial included."""
    paces = [pace_of_run(folder) for folder in sorted(results.glob("*")) if folder.name != "search"]
    known = [pace for pace in paces if pace is not None]
    return max(known, default=None)


def _own_epochs(record: Record, trial: int, epochs: int) -> int:
    """Return how many epochs a leaf adds to what its rung below has trained."""
    below = [rung for rung in record.known.rungs(trial) if rung < epochs]
    return epochs - max(below, default=0)


def _summaries(folder: Path) -> Iterator[dict[str, Any]]:
    for pattern in ("seed-*/summary.json", "seed-*/fold-*/summary.json"):
        for path in folder.glob(pattern):
            yield json.loads(path.read_text())
