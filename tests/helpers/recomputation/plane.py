"""Axes of a chart, reconstructed from its tick labels, and the marks between them."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.quantity import FACTORS, NUMBER

Scale = Callable[[float], float]
SCALES: dict[str, Scale] = {
    "": float,
    "log scale": math.log10,
    "log scale of the error": lambda share: -math.log10(1 - share),
}


@dataclass(frozen=True)
class Ruler:
    """An axis: ticks as (value, place), and the scale between them."""

    ticks: tuple[tuple[float, float], ...]
    scale: Scale

    def place(self, value: float) -> float:
        """Return the place of a value."""
        (low, start), (high, end) = self.ticks[0], self.ticks[-1]
        low, high = self.scale(low), self.scale(high)
        return start + (end - start) * (self.scale(value) - low) / (high - low)

    def tolerance(self, place: float) -> float:
        """Return the error of a place: places and ticks are rounded to a tenth of a unit."""
        (_, start), (_, end) = self.ticks[0], self.ticks[-1]
        return 0.12 + 0.11 * max(abs(place - start), abs(place - end)) / abs(end - start)


def ruler(audit: Audit, chart: Element, ticks: list[tuple[str, float]], scale: Scale) -> Ruler | None:
    """Return the axis of labeled ticks; record a difference if a tick is not at the place of its value."""
    if len(ticks) < 2:
        audit.differ(chart, f"an axis has {len(ticks)} ticks")
        return None
    found = Ruler(tuple((_value(label), place) for label, place in ticks), scale)
    for value, place in found.ticks:
        audit.require(
            abs(found.place(value) - place) < 0.2,
            chart,
            f"tick {value} is at {place}, not {found.place(value):.2f}",
        )
    return found


def _value(label: str) -> float:
    found = re.fullmatch(rf"({NUMBER})(?: (%))?", label)
    assert found, f"tick {label!r} is no number"
    return float(found[1].replace(",", "").replace("\u2212", "-")) * FACTORS[found[2] or ""]


def read_ticks(audit: Audit, chart: Element) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Return the labels and places of the ticks of both axes, x first; labels must stand beside their ticks."""
    xs, ys, path = [], [], None
    for element in chart.walk():
        if element.tag == "path" and element.classes & {"grid", "base"}:
            path = element
            path.attributes["d"].explain()
        if element.tag == "text":
            _explain(element)
            if "name" in element.classes:
                continue
            assert path is not None
            x, y = map(float, re.match(r"M([\d.-]+),([\d.-]+)", path["d"]).groups())
            vertical = "grid" in path.classes
            place, beside = (y, float(element["y"]) - 4) if vertical else (x, float(element["x"]))
            audit.require(
                abs(place - beside) < 0.11, element, f"the label of the tick at {place} is at {beside}"
            )
            (ys if vertical else xs).append((element.text, place))
    return xs, ys


def _explain(label: Element) -> None:
    for name in ("x", "y"):
        label.attributes[name].explain()
    for text in label.texts():
        text.explain()


def points(path: str) -> list[tuple[float, float]]:
    """Return the points of a path of straight lines."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.-]+),([\d.-]+)", path)]


def check_line(audit: Audit, path: Element, line: Sequence[tuple[float, float]], x: Ruler, y: Ruler) -> None:
    """Compare the points of a path with values."""
    path.attributes["d"].explain()
    drawn = points(path["d"])
    audit.require(len(drawn) == len(line), path, f"{len(drawn)} points, not {len(line)}")
    for place, value in zip(drawn, line, strict=False):
        check_place(audit, path, place, value, x, y)


def check_place(
    audit: Audit, element: Element, place: tuple[float, float], value: tuple[float, float], x: Ruler, y: Ruler
) -> None:
    """Compare a point with values on both axes."""
    expected = x.place(value[0]), y.place(value[1])
    for axis, at, wanted in zip((x, y), place, expected, strict=True):
        if abs(at - wanted) > axis.tolerance(wanted):
            audit.differ(
                element, f"{place} is drawn for {value}, recomputed ({expected[0]:.2f}, {expected[1]:.2f})"
            )


def check_mark(audit: Audit, circle: Element, across: float, value: float, x: Ruler, y: Ruler) -> None:
    """Compare the place of a mark with values."""
    for name in ("cx", "cy"):
        circle.attributes[name].explain()
    check_place(audit, circle, (float(circle["cx"]), float(circle["cy"])), (across, value), x, y)
