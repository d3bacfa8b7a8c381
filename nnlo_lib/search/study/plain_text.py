"""Figures of a search in plain text."""

import math
import re

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import SearchPoint
from nnlo_lib.search.study.trial_summary import TrialSummary

# settings, and figures: not the line of a file
VARIABLE_PARTS = re.compile(r"\{[^{}]*\}|(?<![\w.:/-])-?\d[\d,.e+-]*")


def error_signature(reason: str) -> str:
    """Return what a reason has in common with those of other trials."""
    less = VARIABLE_PARTS.sub("", reason)
    return error_signature(less) if less != reason else less


def format_objective(objective: ObjectiveConfig, row: TrialSummary) -> str:
    """Say what a trial is worth: `val_loss 0.1234 +- 0.0100 over 3 folds`."""
    folds = f" over {len(row.folds)} folds" if len(row.folds) > 1 else ""
    return f"{objective.metric} {with_error(row.objective, row.standard_error)}{folds}"


def format_selection(known: StudySnapshot) -> str:
    """Say what the best was chosen among, if that is not all that did not fail: `chosen among 2 trained for 9 epochs`."""
    epochs = known.contenders.values()
    if not epochs:
        return "chosen among trials without all folds"
    low, high = min(epochs), max(epochs)
    able = sum(not known.has_failed(trial.number) for trial in known.trials)
    if len(epochs) == able and low == high:
        return ""
    span = f"{high}" if low == high else f"{low} to {high}"
    return f"chosen among {len(epochs)} trained for {span} epochs"


def with_error(mean: float, error: float) -> str:
    """Write a mean and its standard error, if there is one."""
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.5g}" + (f" +- {error:.2g}" if math.isfinite(error) else "")


def format_point_lines(point: SearchPoint) -> list[str]:
    """Write a point, a key a line."""
    width = max(map(len, point), default=0)
    return [f"{key:<{width}}  {format_value(value)}" for key, value in point.items()]


def format_value(value: object) -> str:
    """Write a value of a key."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def format_duration(seconds: float) -> str:
    """Write a duration as 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
