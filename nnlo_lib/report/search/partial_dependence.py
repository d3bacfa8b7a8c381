"""Importance of the searched keys, and dependence of the objective on the most important ones."""

from dataclasses import dataclass

import pandas as pd

from nnlo_lib.core.text_format import number
from nnlo_lib.report.charts.chart import Chart, Line, Mark, svg_path
from nnlo_lib.report.charts.learning_curves import AXIS_INSET, LEFT, RIGHT
from nnlo_lib.report.formatting import plural
from nnlo_lib.report.search.convergence import trial_css_class
from nnlo_lib.report.search.importance import MIN_RELIABLE_R2, MIN_TRIALS, SPLITS, TREES, ImportanceForest
from nnlo_lib.report.search.parameters import SearchedParameter
from nnlo_lib.report.search.study_data import StudyData, named
from nnlo_lib.search.study.plain_text import format_value

MAX_DEPENDENCE_CHARTS = 4  # number of keys with a chart


@dataclass(frozen=True)
class ImportanceBar:
    """A key and its share of the objective's variance; `width` is a fraction of the longest bar."""

    name: str
    share: float
    width: float


def importance_bars(fitted: ImportanceForest | None) -> list[ImportanceBar]:
    """Return a bar per key, the most important first; empty without a reliable forest."""
    ranked = fitted.ranked_parameters() if fitted and fitted.is_reliable else []
    longest = max((share for _, share in ranked), default=0) or 1
    return [ImportanceBar(key.name, share, share / longest) for key, share in ranked]


def importance_note(data: StudyData, fitted: ImportanceForest | None) -> str:
    """Return sentences on the computation of the importances and on the quality of the fit."""
    if fitted is None:
        return (
            f"Importance requires at least {MIN_TRIALS} trials with an objective (available: {len(data.ranked_rows)}) "
            "and a key with at least two different values."
        )
    target = "the logarithm of the objective" if fitted.logarithmic else "the objective"
    model = f"A random forest ({TREES} trees, {plural(len(data.ranked_rows), 'trial')}) predicts {target}. {_epochs(data)}"
    quality = f"For held-out trials ({SPLITS}-fold cross-validation), the forest explains {max(0.0, fitted.r_squared):.0%} of the variance"
    if not fitted.is_reliable:
        return f"{model}{quality}, less than {MIN_RELIABLE_R2:.0%}: importances are not shown."
    return (
        f"{model}{quality}; the bars divide this share among the keys by permutation importance (Breiman 2001), the decrease of R² for "
        f"held-out trials when the values of a key are shuffled among all trials."
    )


def _epochs(data: StudyData) -> str:
    if len({row.epochs for row in data.ranked_rows}) == 1:
        return ""
    return "The number of epochs is an additional input because it differs between trials; its share is not shown. "


def partial_dependence_charts(data: StudyData, fitted: ImportanceForest | None) -> list[Chart]:
    """Return charts of the most important keys: the trials and the partial dependence."""
    if fitted is None or not fitted.is_reliable:
        return []
    # A key without importance has a constant dependence.
    ranked = [key for key, share in fitted.ranked_parameters() if share > 0][:MAX_DEPENDENCE_CHARTS]
    return [_dependence(data, fitted, key) for key in ranked]


def _dependence(data: StudyData, fitted: ImportanceForest, key: SearchedParameter) -> Chart:
    numbers, predicted = fitted.partial_dependence(key)
    rows = [row for row in data.ranked_rows if key.name in row.point]
    y, note = data.objective_axis(pd.Series([row.objective for row in rows] + predicted, dtype=float))
    x = key.axis(numbers, LEFT + AXIS_INSET, RIGHT - AXIS_INSET)
    marks = [
        Mark(
            round(x.position(key.to_number(row.point[key.name])), 1),
            round(y.position(row.objective), 1),
            trial_css_class(data, row),
            f"{named(row)}: {format_value(row.point[key.name])}, {data.format_value(row.objective)}",
        )
        # The marks of the best trials are drawn last, over the others.
        for row in reversed(rows)
    ]
    points = [(x.position(a), y.position(b)) for a, b in zip(numbers, predicted, strict=True)]
    # Choices have no order, so nothing lies between them: a short bar each instead of a line.
    if key.choices:
        lines = [
            Line(f"M{a - 14:.1f},{b:.1f}H{a + 14:.1f}", "leader", number(value))
            for (a, b), value in zip(points, predicted, strict=True)
        ]
    else:
        lines = [Line(svg_path(points), "leader")]
    return Chart(key.name, note, key.name, x, y, tuple(lines), tuple(marks))
