"""The value of a trial: one number; smaller is better, infinite if the trial failed."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.trial import Result


def fold_value(objective: ObjectiveConfig, result: Result) -> float:
    """Return the value of a fold after a fold task: best or last epoch; infinite if it is not valid."""
    if result.status != "finished" or exceeds_time_limit(objective, result):
        return math.inf
    if objective.epoch == "best":
        return lowest(objective, result)
    last = _column(objective, result)[-1:]
    return next(filter(math.isfinite, last), math.inf)


def lowest(objective: ObjectiveConfig, result: Result) -> float:
    """Return the best value of all epochs; infinite if no epoch has a finite value."""
    return min(filter(math.isfinite, _column(objective, result)), default=math.inf)


def running_average(objective: ObjectiveConfig, result: Result) -> float:
    """Return the mean of the finite values of all epochs so far; infinite if no epoch has a finite value."""
    finite = list(filter(math.isfinite, _column(objective, result)))
    return fmean(finite) if finite else math.inf


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard error over folds; the error is NaN for a single fold or an infinite value."""
    finite = all(map(math.isfinite, values))
    error = stdev(values) / math.sqrt(len(values)) if finite and len(values) > 1 else math.nan
    return fmean(values), error


def exceeds_time_limit(objective: ObjectiveConfig, result: Result) -> bool:
    """Return True if a fold was trained for longer than the objective allows."""
    return objective.max_seconds is not None and any(
        row["seconds"] > objective.max_seconds for row in result.rows[-1:]
    )


def _column(objective: ObjectiveConfig, result: Result) -> list[float]:
    """Return the metric by epoch, smaller being better. Raises UserError if the history lacks its column."""
    try:
        values = [row[objective.metric] for row in result.rows]
    except KeyError as error:
        known = ", ".join(result.rows[0])
        raise UserError(
            f"search.objective.metric: trial {result.fold_task.trial} has no {objective.metric}; its history has the columns {known}"
        ) from error
    return [math.nan if each is None else objective.sign * each for each in values]
