"""Learning curves as plain data for the templates: a panel per metric, with axes and a curve per run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.core.text_format import number
from nnlo_lib.report.charts import axis
from nnlo_lib.report.charts.axis import Axis
from nnlo_lib.report.charts.curve import Curve, CurveDrawer
from nnlo_lib.report.charts.loss_name import quantity_name
from nnlo_lib.report.charts.measured_values import measured_values
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import percent
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


def learning_curve_panels(
    jobs: Sequence[FinishedRun], clock: TimeBase, ranked_by: str | None = None
) -> list[CurvePanel]:
    """Return panels over epochs, and of the metric that ranks the runs over seconds; each axis has one quantity.

    Args:
        jobs: the finished jobs.
        clock: unit of the seconds of each run.
        ranked_by: test metric that ranks the runs; drawn from validation data if available, else from training
            data, else replaced by the last panel's metric.
    """
    names = _metrics(jobs)
    chosen = [(name, "epoch") for name in [*names, "consensus_error"]]
    ranking = [f"{split}_{ranked_by}" for split in ("val", "train")]
    # The last metric is the main one; see `_metrics`.
    chosen += [(name, "seconds") for name in ([*filter(names.__contains__, ranking)] or names[-1:])[:1]]
    return [panel for name, against in chosen for panel in _panels(jobs, name, against, clock)]


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


def _panels(jobs: Sequence[FinishedRun], metric: str, against: str, clock: TimeBase) -> list[CurvePanel]:
    """Return a panel for each quantity that the runs call `metric`, such as different loss functions.

    Args:
        jobs: the finished jobs.
        metric: column of the history.
        against: column of the x axis, `epoch` or `seconds`.
        clock: unit of the seconds of each run.
    """
    groups = group_by_run(jobs)
    runs = {run: _lines(group, metric) for run, group in groups.items()}
    quantities = {run: quantity_name(groups[run][0], metric) for run in groups if runs[run]}
    return [
        # A run keeps its index, and so its color, in panels that lack other runs.
        _panel({run: runs[run] if quantities.get(run) == quantity else [] for run in runs}, _title(metric, quantity), metric, against, clock)
        for quantity in dict.fromkeys(quantities.values())
    ]  # fmt: skip


def _panel(
    runs: Mapping[str, Sequence[pd.DataFrame]], title: str, metric: str, against: str, clock: TimeBase
) -> CurvePanel:
    known = pd.concat([line for lines in runs.values() for line in lines])
    y, note, format_value = value_axis(metric, known["value"])
    drawer = CurveDrawer(_horizontal(against, known[against]), y, against, format_value, clock)
    curves = tuple(drawer.curve(place, run, runs[run]) for place, run in enumerate(runs) if runs[run])
    return CurvePanel(title, note, _x_label(against, clock), drawer.x, y, curves)


def _x_label(against: str, clock: TimeBase) -> str:
    if against == "epoch":
        return "epoch"
    return "time (s): virtual or measured" if clock.mixed else f"{clock.word or 'training'} time (s)"


def _title(metric: str, quantity: str) -> str:
    split, name = metric.split("_", 1)
    if split == "consensus":
        return "Mean distance of the nodes from their mean"
    title = f"{'Training' if split == 'train' else 'Validation'} {name.replace('_', ' ')}"
    return f"{title} ({quantity})" if quantity else title


def _lines(jobs: Iterable[FinishedRun], metric: str) -> list[pd.DataFrame]:
    """Return epoch, seconds and value of each job that has finite values of the metric."""
    return [line for job in jobs if len(line := measured_values(job, metric))]


def _horizontal(against: str, values: "pd.Series[float]") -> Axis:
    if against == "epoch":
        # Validations within epochs have fractional epochs.
        whole = (math.floor(values.min()), math.ceil(values.max()))
        return axis.integer(whole, LEFT + AXIS_INSET, RIGHT - AXIS_INSET)
    # Time starts at 0, before the end of the first epoch.
    return axis.linear([0.0, *values], LEFT, RIGHT - AXIS_INSET)


def value_axis(metric: str, values: "pd.Series[float]") -> tuple[Axis, str, Callable[[float], str]]:
    """Return an axis for values of a metric, a note on its scale, and a function that formats a value."""
    low, high, ends = values.min(), values.max(), (BOTTOM - AXIS_INSET, TOP + AXIS_INSET)
    if metric.endswith("accuracy") and low >= 0 and high <= 1:
        note = "log scale of the error" + (", shifted to show 100 %" if high == 1 else "")
        return axis.accuracy(values, *ends), note, percent
    if low > 0 and high / low > LOG_SCALE_MIN_RATIO:
        return axis.logarithmic(values, *ends), "log scale", number
    return axis.linear(values, *ends), "", number
