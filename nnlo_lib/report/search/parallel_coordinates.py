"""Parallel coordinates of a search: an axis per key and one for the objective, a line per trial."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.report.charts.axis import Axis
from nnlo_lib.report.charts.chart import Line, svg_path
from nnlo_lib.report.search.parameters import SearchedParameter
from nnlo_lib.report.search.study_data import StudyData, named
from nnlo_lib.search.study.plain_text import format_value
from nnlo_lib.search.study.trial_summary import TrialSummary

TOP, BOTTOM, HEIGHT, INACTIVE_Y = 44, 296, 336, 320
MIN_WIDTH, PAGE, MARGIN, NARROW, WIDE = 720, 1104, 64, 115, 220
MAX_THICK_LINES = 120  # lines; above this number, all lines are thin
MAX_AXES = 12  # keys; the least important of more keys are left out
SHADES = 5


@dataclass(frozen=True)
class CoordinateAxis:
    """One vertical axis.

    Attributes:
        x: horizontal position, in drawing units.
        name: full name of the key.
        short: short name.
        axis: positions of the values.
        without: whether the key is missing in some trial.
    """

    x: float
    name: str
    short: str
    axis: Axis
    without: bool = False


@dataclass(frozen=True)
class ParallelCoordinates:
    """The chart.

    Attributes:
        width: width in drawing units.
        uprights: one axis per key, then the objective.
        lines: one per trial, the best last.
        dense: whether the lines are drawn thin because there are more than MAX_THICK_LINES.
        left_out: number of keys without an axis.
    """

    width: int
    uprights: tuple[CoordinateAxis, ...]
    lines: tuple[Line, ...]
    dense: bool
    left_out: int

    @property
    def without(self) -> bool:
        """Whether a key with an axis is missing in some trial."""
        return any(upright.without for upright in self.uprights)


def parallel_coordinates(data: StudyData, keys: Sequence[SearchedParameter]) -> ParallelCoordinates | None:
    """Return the chart of the trials with an objective; None without keys or with fewer than two trials."""
    rows, kept = data.ranked_rows, keys[:MAX_AXES]
    if len(rows) < 2 or not kept:
        return None
    # Wide spacing only up to the width of the page; beyond it, narrow spacing, and the chart scrolls.
    width = max(MIN_WIDTH, min(PAGE, 2 * MARGIN + WIDE * len(kept)), 2 * MARGIN + NARROW * len(kept))
    places = [MARGIN + (width - 2 * MARGIN - 20) * number / len(kept) for number in range(len(kept) + 1)]
    uprights = [
        CoordinateAxis(
            x, key.name, key.short_name, _axis(key, rows), any(key.name not in row.point for row in rows)
        )
        # The objective has the additional last place.
        for x, key in zip(places, kept, strict=False)
    ]
    objective = pd.Series([row.objective for row in rows], dtype=float)
    last = _stretched_axis(data.objective_axis(objective)[0])
    uprights.append(CoordinateAxis(places[-1], data.metric, data.metric, last))
    lines = [_line(data, row, rank * SHADES // len(rows), kept, uprights) for rank, row in enumerate(rows)]
    # SVG paints later lines over earlier ones: the best trial is drawn last.
    return ParallelCoordinates(
        width, tuple(uprights), tuple(reversed(lines)), len(rows) > MAX_THICK_LINES, len(keys) - len(kept)
    )


def _line(
    data: StudyData,
    row: TrialSummary,
    shade: int,
    keys: Sequence[SearchedParameter],
    uprights: Sequence[CoordinateAxis],
) -> Line:
    heights = [
        # A trial without the key passes below its axis.
        upright.axis.position(key.to_number(row.point[key.name])) if key.name in row.point else INACTIVE_Y
        for key, upright in zip(keys, uprights, strict=False)
    ]
    heights.append(uprights[-1].axis.position(row.objective))
    points = [(upright.x, height) for upright, height in zip(uprights, heights, strict=True)]
    settings = ", ".join(f"{key} {format_value(value)}" for key, value in row.point.items())
    css_class = "leader" if row.number == data.best else f"shade-{shade}"
    return Line(svg_path(points), css_class, f"{named(row)}: {data.format_value(row.objective)}; {settings}")


def _axis(key: SearchedParameter, rows: Sequence[TrialSummary]) -> Axis:
    numbers = [key.to_number(row.point[key.name]) for row in rows if key.name in row.point]
    return key.axis(numbers or [0.0, 1.0], BOTTOM, TOP)


def _stretched_axis(found: Axis) -> Axis:
    """Return the axis stretched to the range from BOTTOM to TOP."""
    share = [(place - found.start) / (found.end - found.start) for place, _ in found.ticks]
    labels = [label for _, label in found.ticks]
    ticks = tuple((BOTTOM + part * (TOP - BOTTOM), label) for part, label in zip(share, labels, strict=True))
    return Axis(found.low, found.high, BOTTOM, TOP, found.scale, ticks)
