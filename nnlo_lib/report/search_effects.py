"""Which keys matter, and how the objective depends on the most important ones."""

from dataclasses import dataclass

import pandas as pd

from nnlo_lib.report.drawing import Chart, Line, Mark, path
from nnlo_lib.report.plots import INSET, LEFT, RIGHT
from nnlo_lib.report.search_data import SearchData, named
from nnlo_lib.report.search_forest import LEAST, TREES, Forest
from nnlo_lib.report.search_keys import SearchedKey
from nnlo_lib.report.search_progress import look
from nnlo_lib.report.words import number, plural
from nnlo_lib.search.words import shown

MOST = 4  # keys whose dependence is drawn
WEAK = 0.2  # R squared below which the forest has learned little


@dataclass(frozen=True)
class Effect:
    """A key and its share of importance; width: of the longest bar."""

    name: str
    share: float
    width: float


def effects(fitted: Forest | None) -> list[Effect]:
    """Return the bars of importance, the largest first."""
    ranked = fitted.ranked() if fitted else []
    longest = max((share for _, share in ranked), default=0) or 1
    return [Effect(key.name, share, share / longest) for key, share in ranked]


def how(data: SearchData, fitted: Forest | None) -> str:
    """Say how importance was found, and what it is worth."""
    if fitted is None:
        return f"Importance needs {LEAST} trials with a result and keys that differ; there are {len(data.worthy)}."
    weak = " It has learned little: do not rely on it." if fitted.fit < WEAK else ""
    of = "its logarithm" if fitted.logarithmic else "it"
    return (
        f"Importance of a key: by how much a random forest ({TREES} trees, fitted to {plural(len(data.worthy), 'trial')}) predicts the "
        f"objective worse when the key's values are shuffled among the trials (permutation importance, of {of}), as a share of all keys. "
        f"{_epochs(data)}On trials that a tree has not seen, the forest explains {max(0.0, fitted.fit):.0%} of the variance.{weak}"
    )


def _epochs(data: SearchData) -> str:
    if len({row.epochs for row in data.worthy}) == 1:
        return ""
    return "The number of epochs is an input of the forest, too, since trials were stopped. "


def dependences(data: SearchData, fitted: Forest | None) -> list[Chart]:
    """Return a chart for each of the most important keys: the forest's mean over all other keys, and the trials."""
    if fitted is None:
        return []
    ranked = [key for key, share in fitted.ranked() if share > 0][:MOST]
    return [_dependence(data, fitted, key) for key in ranked]


def _dependence(data: SearchData, fitted: Forest, key: SearchedKey) -> Chart:
    numbers, predicted = fitted.dependence(key)
    rows = [row for row in data.worthy if key.name in row.point]
    y, note = data.vertical(pd.Series([row.objective for row in rows] + predicted, dtype=float))
    x = key.axis(numbers, LEFT + INSET, RIGHT - INSET)
    marks = [
        Mark(
            round(x.place(key.number(row.point[key.name])), 1),
            round(y.place(row.objective), 1),
            look(data, row),
            f"{named(row)}: {shown(row.point[key.name])}, {data.say(row.objective)}",
        )
        for row in reversed(rows)
    ]
    points = [(x.place(a), y.place(b)) for a, b in zip(numbers, predicted, strict=True)]
    if key.listed:
        lines = [
            Line(f"M{a - 14:.1f},{b:.1f}H{a + 14:.1f}", "leader", number(value))
            for (a, b), value in zip(points, predicted, strict=True)
        ]
    else:
        lines = [Line(path(points), "leader")]
    return Chart(key.name, note, key.name, x, y, tuple(lines), tuple(marks))
