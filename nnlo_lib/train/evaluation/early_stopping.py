"""Early stopping and detection of the best validation, as pure functions of the validation rows."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

from nnlo_lib.config.stopping import EarlyStoppingConfig, TargetMetricConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.state.jsonl_table import TableRow


def reason_to_stop(train: TrainConfig, rows: Sequence[TableRow]) -> str:
    """Return why the training ends after these validations (in order); empty if it continues."""
    reached = train.target and _reached(train.target, rows)
    waited = train.early_stopping and _waited(train.early_stopping, rows)
    return reached or waited or ""


def is_best(rows: Sequence[TableRow], metric: str, wants_larger: bool) -> bool:
    """Return True if the last validation is the best; of equal values, the first is the best.

    Args:
        rows: validations in order.
        metric: column of the rows.
        wants_larger: whether larger values are better.
    """
    if not (rows and metric in rows[-1]):
        return False
    *before, last = _goals(rows, metric, wants_larger)
    # A NaN or infinite value is never the best, and it does not prevent a later value from being the best.
    return isfinite(last) and all(last < value for value in before if isfinite(value))


def _reached(target: TargetMetricConfig, rows: Sequence[TableRow]) -> str:
    if not rows or target.metric not in rows[-1]:
        return ""
    value = float(rows[-1][target.metric])
    passed = value > target.value if target.larger_is_better else value < target.value
    return f"target: {target.metric} {value:.6g} has passed {target.value:g}" if passed else ""


def _waited(rule: EarlyStoppingConfig, rows: Sequence[TableRow]) -> str:
    goals = _goals(rows, rule.metric, rule.larger_is_better)
    if rule.smoothed:
        return _worse_on_average(rule, goals)
    best, since = float("inf"), 0
    for goal in goals:
        # A NaN compares as not smaller, so it counts as no improvement.
        best, since = (goal, 0) if goal < best - rule.min_delta else (best, since + 1)
    return (
        f"early stopping: {rule.metric} did not improve in {since} validations"
        if since >= rule.patience
        else ""
    )


def _worse_on_average(rule: EarlyStoppingConfig, goals: list[float]) -> str:
    """Apply NNLO's smoothed rule (its process.py, 2019)."""
    n = rule.patience
    worse = len(goals) >= 2 * n and fmean(goals[-n:]) > fmean(goals[-2 * n : -n]) + rule.min_delta
    return (
        f"early stopping: the mean of {rule.metric} over the last {n} validations is worse than over the previous {n}"
        if worse
        else ""
    )


def _goals(rows: Sequence[TableRow], metric: str, wants_larger: bool) -> list[float]:
    """Return the values of a metric, with the sign chosen so that smaller is better.

    Args:
        rows: validations in order; rows without the metric are skipped.
        metric: column of the rows.
        wants_larger: whether larger values are better.
    """
    sign = -1.0 if wants_larger else 1.0
    return [sign * float(row[metric]) for row in rows if metric in row]
