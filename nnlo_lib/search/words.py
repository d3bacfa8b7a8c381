"""Figures of a search in plain text."""

import math
import re

from nnlo_lib.config.search import Objective
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.row import Row
from nnlo_lib.search.trial import Point

# settings, and figures: not the line of a file
OF_ONE = re.compile(r"\{[^{}]*\}|(?<![\w.:/-])-?\d[\d,.e+-]*")


def cause(reason: str) -> str:
    """Return what a reason has in common with those of other trials."""
    less = OF_ONE.sub("", reason)
    return cause(less) if less != reason else less


def measured(objective: Objective, row: Row) -> str:
    """Say what a trial is worth: `val_loss 0.1234 +- 0.0100 over 3 folds`."""
    folds = f" over {len(row.folds)} folds" if len(row.folds) > 1 else ""
    return f"{objective.metric} {with_error(row.objective, row.error)}{folds}"


def among(known: Knowledge) -> str:
    """Say what the best was chosen among, if that is not all that did not fail: `chosen among 2 trained for 9 epochs`."""
    epochs = known.contenders.values()
    if not epochs:
        return "chosen among trials without all folds"
    low, high = min(epochs), max(epochs)
    able = sum(not known.failed(trial.number) for trial in known.trials)
    if len(epochs) == able and low == high:
        return ""
    span = f"{high}" if low == high else f"{low} to {high}"
    return f"chosen among {len(epochs)} trained for {span} epochs"


def with_error(mean: float, error: float) -> str:
    """Write a mean and its standard error, if there is one."""
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.5g}" + (f" +- {error:.2g}" if math.isfinite(error) else "")


def settings(point: Point) -> list[str]:
    """Write a point, a key a line."""
    width = max(map(len, point), default=0)
    return [f"{key:<{width}}  {shown(value)}" for key, value in point.items()]


def shown(value: object) -> str:
    """Write a value of a key."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def clock(seconds: float) -> str:
    """Write a duration as 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
