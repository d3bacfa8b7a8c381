"""Plain-text format of objectives and points."""

import math
import re

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.core.text_format import table_lines
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import SearchPoint
from nnlo_lib.search.study.trial_summary import TrialSummary

# Settings in braces, and numbers. Line numbers such as `file.py:12` are kept because they locate the error.
VARIABLE_PARTS = re.compile(r"\{[^{}]*\}|(?<![\w.:/-])-?\d[\d,.e+-]*")


def error_signature(reason: str) -> str:
    """Return the reason without settings and numbers, so that equal errors have equal signatures."""
    shortened = VARIABLE_PARTS.sub("", reason)
    # Repeated, because the pattern removes only the innermost of nested braces.
    return error_signature(shortened) if shortened != reason else shortened


def format_objective(objective: ObjectiveConfig, row: TrialSummary) -> str:
    """Return the objective of a trial as text: `val_loss 0.1234 +- 0.0100 over 3 folds`."""
    folds = f" over {len(row.folds)} folds" if len(row.folds) > 1 else ""
    folds = f" ({adjustment_text(row)})" if row.adjusted_from else folds
    return f"{objective.metric} {with_error(row.objective, row.standard_error)}{folds}"


def adjustment_text(row: TrialSummary) -> str:
    """Return the number of folds from which the mean over all folds was estimated, as text; empty for all folds."""
    several = "s" * (row.adjusted_from > 1)
    return f"adjusted, from {row.adjusted_from} fold{several}" if row.adjusted_from else ""


def format_selection(known: StudySnapshot) -> str:
    """Return the candidates for the best trial as text: `selected from 2 trials trained for 9 epochs`.

    Return an empty string if the candidates are all trials that did not fail, with the same number of epochs.
    """
    epochs = known.contenders.values()
    if not epochs:
        return "selected from trials with incomplete folds"
    low, high = min(epochs), max(epochs)
    valid = sum(not known.has_failed(trial.number) for trial in known.trials)
    if len(epochs) == valid and low == high:
        return ""
    span = f"{high}" if low == high else f"{low} to {high}"
    return f"selected from {len(epochs)} trial{'s' * (len(epochs) > 1)} trained for {span} epochs"


def with_error(mean: float, error: float) -> str:
    """Return a mean as text, with its standard error if that is finite; `-` if the mean is not finite."""
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.5g}" + (f" +- {error:.2g}" if math.isfinite(error) else "")


def format_point_lines(point: SearchPoint) -> list[str]:
    """Return a point as text lines, one per key."""
    return list(table_lines([(key, format_value(value)) for key, value in point.items()], left=(0, 1)))


def format_value(value: object) -> str:
    """Return the value of a key as text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.5g}" if isinstance(value, float) else str(value)
