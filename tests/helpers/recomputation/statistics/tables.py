"""Comparison of summary.csv and comparisons.csv with the raw files of the trainings."""

import json
import math
from collections.abc import Callable
from typing import Any

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import Job, Trainings
from helpers.recomputation.statistics.family import Comparison, family
from helpers.recomputation.statistics.metrics import compared_metrics, loss_function, raw_value

KEY = ("run", "seed", "fold")
RATE_ERROR = 1e-4  # relative error of a speed from seconds with six decimals
TEXTS: dict[str, Callable[[Job], Any]] = {
    "run": lambda job: job.run,
    "transport": lambda job: job.summary["config"]["parallel"]["transport"],
    "ended_early": lambda job: job.summary["ended_early"] or "",
    "problem": lambda job: job.summary["config"]["problem"]["name"],
    "data": lambda job: job.summary["data"]["fingerprint"][:12],
    "split": lambda job: job.evaluation["split"],
}
COUNTS: dict[str, Callable[[Job], "int | None"]] = {
    "seed": lambda job: job.summary["seed"],
    "fold": lambda job: job.summary["fold"],
    "bytes_sent": lambda job: sum(job.summary["bytes_sent"].values()),
    "epochs": lambda job: int(job.history[-1]["epoch"]),
    "ranks": lambda job: len(job.summary["roles"]),
    "restarts": lambda job: sum(each["reason"] != "finished" for each in job.attempts),
    "samples": lambda job: len(next(iter(job.sample_metrics.values()), ())) or job.evaluation["samples"],
    "training_samples": lambda job: job.training_samples,
    "validation_samples": lambda job: job.validation_samples,
}


def check_summary(audit: Audit, raw: Trainings) -> None:
    """Compare each cell of summary.csv."""
    rows = raw.table("summary.csv")
    audit.require(len(rows) == len(raw.jobs), audit.page, f"{len(rows)} rows of {len(raw.jobs)} trainings")
    for row, job in zip(rows, raw.jobs, strict=False):
        names = {name for name, value in job.evaluation.items() if isinstance(value, float)}
        names |= {name for name in job.published if name.startswith("val_")}
        audit.require(names <= set(row), audit.page, f"summary.csv has no column {sorted(names - set(row))}")
        for name, cell in row.items():
            _check(audit, f"summary.csv, {job.run} {job.name}, {name}", cell, cell_value(name, job), name)


def cell_value(name: str, job: Job) -> Any:
    """Return the value of a training by its column of summary.csv."""
    if name in TEXTS or name in COUNTS:
        return {**TEXTS, **COUNTS}[name](job)
    return loss_function(job) if name == "loss_function" else raw_value(name, job)


def _check(audit: Audit, where: str, cell: str, expected: Any, name: str) -> None:
    if name == "loss_function":
        same = json.loads(cell) == json.loads(expected)
    elif isinstance(expected, float):
        tolerance = RATE_ERROR if name == "samples_per_second" else 1e-7
        found = float(cell or "nan")
        same = math.isclose(found, expected, rel_tol=tolerance, abs_tol=1e-9) or (
            math.isnan(found) and math.isnan(expected)
        )
    else:
        same = cell == ("" if expected is None else str(expected))
    audit.require(same, audit.page, f"{where} is {cell!r}, recomputed {expected!r}")


def check_comparisons(audit: Audit, raw: Trainings) -> None:
    """Compare each cell of comparisons.csv."""
    rows = raw.table("comparisons.csv")
    found = [each for metric in compared_metrics(raw) for each in family(raw, metric)]
    audit.require(len(rows) == len(found), audit.page, f"{len(rows)} rows of {len(found)} comparisons")
    for row, comparison in zip(rows, found, strict=False):
        where = f"comparisons.csv, {comparison.metric.column}, {comparison.run} and {comparison.other}"
        for name, expected in _comparison_cells(comparison).items():
            _check(audit, f"{where}, {name}", row[name], expected, name)
        _check_seeds(audit, where, row["more_seeds"], comparison)


def _comparison_cells(comparison: Comparison) -> dict[str, Any]:
    test, metric = comparison.test, comparison.metric
    ends = [math.exp(each) if metric.is_ratio else each for each in (test.mean, test.low, test.high)]
    return {
        "metric": metric.column,
        "run": comparison.run,
        "other": comparison.other,
        "scale": "ratio" if metric.is_ratio else "difference",
        **dict(zip(("difference", "low", "high"), ends, strict=True)),
        "p_value": test.p,
        "p_holm": comparison.p_holm,
        "better": comparison.better,
        "pairs_are": comparison.kind,
        "pairs": test.pairs,
        "left_out": comparison.left_out,
    }


def _check_seeds(audit: Audit, where: str, cell: str, comparison: Comparison) -> None:
    right = comparison.suffices(int(cell)) if cell else True
    audit.require(right and bool(cell) == comparison.needs_seeds, audit.page, f"{where}: {cell!r} more seeds")
