"""Learning curves as plain data for the templates: a panel per metric, with axes and a curve per run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nnlo_lib.report.charts import axis
from nnlo_lib.report.charts.axis import Axis
from nnlo_lib.report.charts.curve import Curve, CurveDrawer
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import number, percent
from nnlo_lib.report.time_base import TimeBase
from nnlo_lib.state.finished_run import FinishedRun

WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 448, 12, 246  # the plotted area
AXIS_INSET = 6  # distance of the first and last value from the edge of the plotted area
LOG_SCALE_MIN_RATIO = 8  # ratio of largest to smallest value above which the axis is logarithmic


@dataclass(frozen=True)
class CurvePanel:
    """A panel: one metric, with a curve per run.

    Attributes:
        title: heading.
        note: note on the scale of the y axis, or an empty string.
        against: label of the x axis.
        x: horizontal axis.
        y: vertical axis.
        curves: one per run.
    """

    title: str
    note: str
    against: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]


def learning_curve_panels(jobs: Sequence[FinishedRun], clock: TimeBase) -> list[CurvePanel]:
    """Return a panel per metric over epochs, and one of the main metric over seconds."""
    names = _metrics(jobs)
    chosen = [(name, "epoch") for name in [*names, "consensus_error"]]
    # The last metric is the main one; see `_metrics`.
    chosen += [(name, "seconds") for name in names[-1:]]
    drawn = (_panel(jobs, name, against, clock) for name, against in chosen)
    return [panel for panel in drawn if panel is not None]


def _metrics(jobs: Sequence[FinishedRun]) -> list[str]:
    """Return the columns to draw, the main metric last: losses, then the other metrics.

    The other metrics are drawn from validation data if available, else from training data.
    """
    frames = [job.history for job in jobs]
    columns = {str(name) for frame in frames for name in frame if frame[name].notna().any()}
    names = {name.split("_", 1)[1] for name in columns if name.startswith(("train_", "val_"))}
    names = {name for name in names if not _is_extreme_over_nodes(name, names)}
    others = [f"val_{name}" if f"val_{name}" in columns else f"train_{name}" for name in names - {"loss"}]
    losses = [name for name in ("train_loss", "val_loss") if name in columns]
    common = {name for name in others if all(name in frame for frame in frames)}
    # Accuracy last, before it metrics that all jobs have: the last metric is the main one.
    return losses + sorted(
        others, key=lambda name: (name.split("_", 1)[1] == "accuracy", name in common, name)
    )


def _is_extreme_over_nodes(name: str, names: set[str]) -> bool:
    """Return True if a metric is the minimum or maximum over nodes of another metric."""
    return name.endswith(("_min", "_max")) and name[: -len("_min")] in names


def _panel(jobs: Sequence[FinishedRun], metric: str, against: str, clock: TimeBase) -> CurvePanel | None:
    runs = {run: _lines(group, metric) for run, group in group_by_run(jobs).items()}
    lines = [line for group in runs.values() for line in group]
    if not lines:
        return None
    known = pd.concat(lines)
    y, note, format_value = value_axis(metric, known["value"])
    drawer = CurveDrawer(_horizontal(against, known[against]), y, against, format_value, clock)
    # A run keeps its index, and so its color, in panels that lack other runs.
    curves = tuple(drawer.curve(place, run, runs[run]) for place, run in enumerate(runs) if runs[run])
    return CurvePanel(_title(metric), note, _x_label(against, clock), drawer.x, y, curves)


def _x_label(against: str, clock: TimeBase) -> str:
    if against == "epoch":
        return "epoch"
    return "time (s): virtual or measured" if clock.mixed else f"{clock.word or 'training'} time (s)"


def _title(metric: str) -> str:
    split, name = metric.split("_", 1)
    if split == "consensus":
        return "Mean distance of the nodes from their mean"
    return f"{'Training' if split == 'train' else 'Validation'} {name.replace('_', ' ')}"


def _lines(jobs: Iterable[FinishedRun], metric: str) -> list[pd.DataFrame]:
    """Return epoch, seconds and value of each job that has the metric, without rows that are not finite."""
    frames = [job.history[["epoch", "seconds", metric]] for job in jobs if metric in job.history]
    known = [frame.set_axis(["epoch", "seconds", "value"], axis=1).astype(float) for frame in frames]
    finite = [frame[np.isfinite(frame["value"])] for frame in known]
    return [frame for frame in finite if len(frame)]


def _horizontal(against: str, values: "pd.Series[float]") -> Axis:
    if against == "epoch":
        return axis.integer(values, LEFT + AXIS_INSET, RIGHT - AXIS_INSET)
    # Time starts at 0, before the end of the first epoch.
    return axis.linear([0.0, *values], LEFT, RIGHT - AXIS_INSET)


def value_axis(metric: str, values: "pd.Series[float]") -> tuple[Axis, str, Callable[[float], str]]:
    """Return an axis for values of a metric, a note on its scale, and a function that formats a value."""
    low, high, ends = values.min(), values.max(), (BOTTOM - AXIS_INSET, TOP + AXIS_INSET)
    if metric.endswith("accuracy") and low >= 0 and high <= 1:
        return axis.accuracy(values, *ends), "log scale of the error", percent
    if low > 0 and high / low > LOG_SCALE_MIN_RATIO:
        return axis.logarithmic(values, *ends), "log scale", number
    return axis.linear(values, *ends), "", number
