"""What a trial is worth: one number, smaller is better, infinite if it failed."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from nnlo_lib.config.search import Objective
from nnlo_lib.search.trial import Result


def value(objective: Objective, result: Result) -> float:
    """Return what one fold is worth after its leaf: the best or the last epoch; infinite if it does not count."""
    if result.status != "finished":
        return math.inf
    seen = [objective.sign * row[objective.metric] for row in result.rows]
    seen = [each for each in seen if math.isfinite(each)] if objective.epoch == "best" else seen[-1:]
    worth = min(seen, default=math.inf)
    too_slow = objective.max_seconds is not None and result.rows[-1]["seconds"] > objective.max_seconds
    return math.inf if too_slow or not math.isfinite(worth) else worth


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard error over folds; the error of a single one is no number."""
    finite = all(map(math.isfinite, values))
    error = stdev(values) / math.sqrt(len(values)) if finite and len(values) > 1 else math.nan
    return fmean(values), error
