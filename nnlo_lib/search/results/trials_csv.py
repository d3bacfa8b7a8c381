"""All trials of a search as a table: trials.csv."""

import csv
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.search.study.storage import StoredStudy
from nnlo_lib.search.study.trial_summary import TrialSummary

FIRST = ("trial", "status", "objective", "adjusted_from_folds", "standard_error")
COSTS = ("epochs", "seconds", "core_hours", "gpu_hours")


def write_table(path: Path, record: StoredStudy) -> None:
    """Write the table atomically, one row per trial: objective, value of each fold, costs, point and error.

    Unknown values, and keys that are not active in a trial, are left empty.
    """
    folds = [f"fold_{fold}" for fold in range(record.search.folds.k)]
    rows = record.trial_summaries
    keys = list(record.search.space) + sorted(
        {key for row in rows for key in row.point} - record.search.space.keys()
    )
    with atomic_write(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*FIRST, *folds, *COSTS, *keys, "error"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(_cells(row) for row in rows)


def _cells(row: TrialSummary) -> dict[str, Any]:
    known = {
        "trial": row.number, "status": row.state, "objective": row.objective,
        "adjusted_from_folds": row.adjusted_from or "", "standard_error": row.standard_error,
        "epochs": row.epochs, "seconds": round(row.seconds, 3), "core_hours": round(row.core_hours, 6),
        "gpu_hours": round(row.gpu_hours, 6), "error": row.reason,
    }  # fmt: skip
    folds = {f"fold_{fold}": value for fold, value in zip(row.fold_numbers, row.folds, strict=True)}
    # An empty cell means that the key is not active; null is a value.
    point = {key: "null" if value is None else value for key, value in row.point.items()}
    # Only NaN differs from itself.
    return {key: "" if value != value else value for key, value in (known | folds | point).items()}
