"""Parallel coordinates: an axis for each key and one for the objective, a line for each trial."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.report.axis import Axis
from nnlo_lib.report.drawing import Line, path
from nnlo_lib.report.search_data import SearchData, named
from nnlo_lib.report.search_keys import SearchedKey
from nnlo_lib.search.row import Row
from nnlo_lib.search.words import shown

TOP, BOTTOM, HEIGHT, NOTHING = 44, 296, 336, 320
LEAST, PAGE, MARGIN, NARROW, WIDE = 720, 1104, 64, 115, 220
MANY = 120  # lines
MOST = 12  # keys; more are left out, the least important first
SHADES = 5


@dataclass(frozen=True)
class Upright:
    """An axis: where it stands, its name (whole and short), its values, and whether some trial has none."""

    x: float
    name: str
    short: str
    axis: Axis
    without: bool = False


@dataclass(frozen=True)
class Lines:
    """The chart. dense: there are so many lines that each must be thin."""

    width: int
    uprights: tuple[Upright, ...]
    lines: tuple[Line, ...]
    dense: bool
    left_out: int

    @property
    def without(self) -> bool:
        """Whether some trial does not have some key."""
        return any(upright.without for upright in self.uprights)


def parallel_coordinates(data: SearchData, keys: Sequence[SearchedKey]) -> Lines | None:
    """Lay out the trials that have an objective, the best drawn last; None where nothing differs."""
    rows, kept = data.worthy, keys[:MOST]
    if len(rows) < 2 or not kept:
        return None
    width = max(LEAST, min(PAGE, 2 * MARGIN + WIDE * len(kept)), 2 * MARGIN + NARROW * len(kept))
    places = [MARGIN + (width - 2 * MARGIN - 20) * number / len(kept) for number in range(len(kept) + 1)]
    uprights = [
        Upright(x, key.name, key.short, _axis(key, rows), any(key.name not in row.point for row in rows))
        for x, key in zip(places, kept, strict=False)
    ]
    objective = pd.Series([row.objective for row in rows], dtype=float)
    last = _upright(data.vertical(objective)[0])
    uprights.append(Upright(places[-1], data.metric, data.metric, last))
    lines = [_line(data, row, rank * SHADES // len(rows), kept, uprights) for rank, row in enumerate(rows)]
    return Lines(width, tuple(uprights), tuple(reversed(lines)), len(rows) > MANY, len(keys) - len(kept))


def _line(
    data: SearchData, row: Row, shade: int, keys: Sequence[SearchedKey], uprights: Sequence[Upright]
) -> Line:
    heights = [
        upright.axis.place(key.number(row.point[key.name])) if key.name in row.point else NOTHING
        for key, upright in zip(keys, uprights, strict=False)
    ]
    heights.append(uprights[-1].axis.place(row.objective))
    points = [(upright.x, height) for upright, height in zip(uprights, heights, strict=True)]
    said = ", ".join(f"{key} {shown(value)}" for key, value in row.point.items())
    look = "leader" if row.number == data.best else f"shade-{shade}"
    return Line(path(points), look, f"{named(row)}: {data.say(row.objective)}; {said}")


def _axis(key: SearchedKey, rows: Sequence[Row]) -> Axis:
    numbers = [key.number(row.point[key.name]) for row in rows if key.name in row.point]
    return key.axis(numbers or [0.0, 1.0], BOTTOM, TOP)


def _upright(found: Axis) -> Axis:
    """Stretch an axis between our ends."""
    share = [(place - found.start) / (found.end - found.start) for place, _ in found.ticks]
    labels = [label for _, label in found.ticks]
    ticks = tuple((BOTTOM + part * (TOP - BOTTOM), label) for part, label in zip(share, labels, strict=True))
    return Axis(found.low, found.high, BOTTOM, TOP, found.scale, ticks)
