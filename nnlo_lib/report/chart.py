"""Charts as plain data for the templates: axes with labeled ticks, lines and marks, in drawing units.

Each function of an axis takes the values that the axis covers, at least one, and the positions of the smallest value
(`start`) and of the largest one (`end`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

# Ticks of an accuracy axis: from 80 % on, their errors form a 1-2-5 series, which a logarithm spaces evenly.
SHARES = (0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 1)
MIN_TICK_GAP = 28  # smallest distance between two ticks, in drawing units
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Axis:
    """A range of values mapped to a line from `start` to `end`, in drawing units, by a monotone `scale`."""

    low: float
    high: float
    start: float
    end: float
    scale: Scale
    ticks: tuple[tuple[float, str], ...]  # position and label

    def position(self, value: float) -> float:
        """Return the position of a value, in drawing units."""
        low, high = self.scale(self.low), self.scale(self.high)
        return self.start + (self.end - self.start) * (self.scale(value) - low) / (high - low)


def linear(values: Iterable[float], start: float, end: float) -> Axis:
    """Return a linear axis."""
    low, high = _range(values)
    return _axis(low, high, start, end, float, _even(low, high), _plain)


def integer(values: Iterable[float], start: float, end: float) -> Axis:
    """Return a linear axis for integers, with integer ticks."""
    known = list(values)
    # An axis needs two different ends, because `Axis.position` divides by their distance.
    low, high = (min(known), max(known)) if len(set(known)) > 1 else (known[0] - 1, known[0] + 1)
    ticks = sorted({float(round(tick)) for tick in _even(low, high)})
    return _axis(low, high, start, end, float, ticks, _plain)


def logarithmic(values: Iterable[float], start: float, end: float) -> Axis:
    """Return a logarithmic axis of positive values."""
    low, high = _range(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    return _axis(low, high, start, end, math.log10, steps, _plain)


def accuracy(values: Iterable[float], start: float, end: float) -> Axis:
    """Return a logarithmic axis of the error (1 - share) of shares from 0 to 1, which separates 98 % and 99 % well.

    With a share of 1, half of the smallest other error is added to every error, because the logarithm of 0 is
    infinite; the place of 1 has the label 100 %.
    """
    low, high, shift = _share_range(list(values))

    def scale(share: float) -> float:
        # The minus sign makes the scale increase with the share. The bound is for rounding errors only.
        return -math.log10(max(1 - share, 0.0) + shift)

    # From the top, so that 100 % keeps its label.
    return _axis(low, high, start, end, scale, reversed(SHARES), lambda share: f"{100 * share:.4g} %")


def _share_range(shares: Sequence[float]) -> tuple[float, float, float]:
    """Return the smallest and the largest share of an axis, and the term that is added to every error."""
    low, high = min(shares), max(shares)
    if high == 1:
        shift = min([1 - share for share in shares if share < 1], default=0.01) / 2
        return (low if low < 1 else 0.99), 1.0, shift
    # Equal shares get an axis of nonzero length, because `Axis.position` divides by it.
    return (low, high, 0.0) if low < high else (max(0.0, low - 0.01), low + (1 - low) / 4, 0.0)


def categorical(labels: Sequence[str], start: float, end: float) -> Axis:
    """Return an axis with one evenly spaced position per label.

    Args:
        labels: labels of the values 0, 1, 2 and so on.
        start: position of the lower end, in drawing units; the first label is inside of it by a margin.
        end: position of the upper end, in drawing units.
    """
    last = max(len(labels) - 1, 1)
    edge = 0.35 if len(labels) > 1 else 1.0
    empty = Axis(-edge, last + edge, start, end, float, ())
    places = [(empty.position(number), label) for number, label in enumerate(labels)]
    return replace(empty, ticks=tuple(places))


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    low, high = min(known), max(known)
    # Equal values get an axis of nonzero length; the absolute term is for values of 0.
    return (low, high) if low < high else (low - abs(low) / 10 - 1e-9, high + abs(high) / 10 + 1e-9)


def _even(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    # The tolerance keeps a step that rounding errors make slightly smaller than `rough`.
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _axis(
    low: float,
    high: float,
    start: float,
    end: float,
    scale: Scale,
    ticks: Iterable[float],
    label: Callable[[float], str],
) -> Axis:
    # Of two ticks that are too close, the first in the order of `ticks` is kept.
    inside = [tick for tick in ticks if low <= tick <= high]
    empty = Axis(low, high, start, end, scale, ())
    kept: list[tuple[float, str]] = []
    # A range without two round numbers of its scale (within a decade, for example) gets evenly spaced ticks.
    for value in inside if len(inside) > 1 else [*inside, *_even(low, high)]:
        place = empty.position(value)
        if all(abs(place - other) >= MIN_TICK_GAP for other, _ in kept):
            kept.append((place, label(value)))
    # Ascending values, whose positions may be descending.
    return replace(empty, ticks=tuple(sorted(kept, reverse=start > end)))


@dataclass(frozen=True)
class Line:
    """A line of a chart as SVG path data, with its class in the style sheet and its tooltip."""

    path: str
    css_class: str
    text: str = ""


@dataclass(frozen=True)
class Mark:
    """A point of a chart at (x, y) in drawing units, with its class in the style sheet and its tooltip."""

    x: float
    y: float
    css_class: str
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart; the lines are drawn behind the marks.

    Attributes:
        note: note on the scale of the y axis, or an empty string.
        against: label of the x axis.
        lines: drawn in this order.
        marks: drawn in this order.
    """

    title: str
    note: str
    against: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]


def svg_path(points: Sequence[tuple[float, float]]) -> str:
    """Return SVG path data through the points."""
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points) if points else ""


def svg_step_path(points: Sequence[tuple[float, float]], end: float) -> str:
    """Return SVG path data of a step line: each height holds until the next point, the last until `end`."""
    if not points:
        return ""
    (x, y), *rest = points
    return f"M{x:.1f},{y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest) + f"H{end:.1f}"
