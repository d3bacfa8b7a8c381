"""Charts of lines and marks on two axes, as plain data for the templates."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.report.charts.axis import Axis


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        path: SVG path data.
        css_class: class in the style sheet.
        text: tooltip.
    """

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
        title: heading.
        note: note on the scale of the y axis, or an empty string.
        against: label of the x axis.
        x: horizontal axis.
        y: vertical axis.
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
