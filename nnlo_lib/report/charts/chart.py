"""Charts of lines and marks on two axes, as what a template draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.report.charts.axis import Axis


@dataclass(frozen=True)
class Line:
    """A path; look: its class in the style sheet; text: what it says when pointed at."""

    path: str
    css_class: str
    text: str = ""


@dataclass(frozen=True)
class Mark:
    """A place, how it looks and what it says."""

    x: float
    y: float
    css_class: str
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart: title, a note on its scale, axes, lines behind marks."""

    title: str
    note: str
    against: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]


def svg_path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path through points."""
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points) if points else ""


def svg_step_path(points: Sequence[tuple[float, float]], end: float) -> str:
    """Return a path that keeps each height until the next point, and the last until `end`."""
    if not points:
        return ""
    (x, y), *rest = points
    return f"M{x:.1f},{y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest) + f"H{end:.1f}"
