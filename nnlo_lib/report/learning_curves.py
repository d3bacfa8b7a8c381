"""Learning curves as plain data for the templates: a panel per metric, with axes and a curve per run."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nnlo_lib.core.text_format import number
from nnlo_lib.report import chart
from nnlo_lib.report.chart import Axis, svg_path
from nnlo_lib.report.formatting import percent
from nnlo_lib.report.quantities import TimeBase, measured_values, quantity_name
from nnlo_lib.report.tables import group_by_run
from nnlo_lib.state.finished_run import FinishedRun

WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 448, 12, 246  # the plotted area
AXIS_INSET = 6  # distance of the first and last value from the edge of the plotted area
LOG_SCALE_MIN_RATIO = 8  # ratio of largest to smallest value above which the axis is logarithmic
MAX_CURVE_POINTS = 120  # points of one line; more cannot be distinguished
MAX_JOB_LINES = 6  # jobs of a run; for more, a band is clearer than lines


@dataclass(frozen=True)
class Curve:
    """The curve of one run.

    Attributes:
        run: index of the run, which selects its color.
        mean: SVG path of the mean over jobs.
        jobs: SVG path of each job; empty if there is one job or a band.
        band: SVG outline of one standard deviation around the mean, or an empty string.
        marks: x, y and tooltip of each point of the mean.
    """

    run: int
    mean: str
    jobs: tuple[str, ...]
    band: str
    marks: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class CurvePanel:
    """A panel: one metric, with a curve per run.

    Attributes:
        note: note on the scale of the y axis, or an empty string.
        against: label of the x axis.
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
    # The minimum and the maximum over nodes of another metric are not drawn.
    names = {
        name for name in names if not (name.endswith(("_min", "_max")) and name[: -len("_min")] in names)
    }
    others = [f"val_{name}" if f"val_{name}" in columns else f"train_{name}" for name in names - {"loss"}]
    losses = [name for name in ("train_loss", "val_loss") if name in columns]
    common = {name for name in others if all(name in frame for frame in frames)}
    # Accuracy last, before it metrics that all jobs have: the last metric is the main one.
    return losses + sorted(
        others, key=lambda name: (name.split("_", 1)[1] == "accuracy", name in common, name)
    )


def _panels(jobs: Sequence[FinishedRun], metric: str, against: str, clock: TimeBase) -> list[CurvePanel]:
    """Return a panel for each quantity that the runs call `metric`, such as different loss functions.

    Args:
        metric: column of the history.
        against: column of the x axis, `epoch` or `seconds`.
    """
    groups = group_by_run(jobs)
    # Epoch, seconds and value of each job that has finite values of the metric.
    runs = {
        run: [line for job in group if len(line := measured_values(job, metric))]
        for run, group in groups.items()
    }
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


def _horizontal(against: str, values: "pd.Series[float]") -> Axis:
    if against == "epoch":
        # Validations within epochs have fractional epochs.
        whole = (math.floor(values.min()), math.ceil(values.max()))
        return chart.integer(whole, LEFT + AXIS_INSET, RIGHT - AXIS_INSET)
    # Time starts at 0, before the end of the first epoch.
    return chart.linear([0.0, *values], LEFT, RIGHT - AXIS_INSET)


def value_axis(metric: str, values: "pd.Series[float]") -> tuple[Axis, str, Callable[[float], str]]:
    """Return an axis for values of a metric, a note on its scale, and a function that formats a value."""
    low, high, ends = values.min(), values.max(), (BOTTOM - AXIS_INSET, TOP + AXIS_INSET)
    if metric.endswith("accuracy") and low >= 0 and high <= 1:
        note = "log scale of the error" + (", shifted to show 100 %" if high == 1 else "")
        return chart.accuracy(values, *ends), note, percent
    if low > 0 and high / low > LOG_SCALE_MIN_RATIO:
        return chart.logarithmic(values, *ends), "log scale", number
    return chart.linear(values, *ends), "", number


@dataclass(frozen=True)
class CurveDrawer:
    """Converts tables with columns `epoch`, `seconds` and `value` to SVG paths.

    Attributes:
        against: column of the x axis, `epoch` or `seconds`.
        format_value: formats a value for a tooltip.
        clock: unit of the seconds of each run.
    """

    x: Axis
    y: Axis
    against: str
    format_value: Callable[[float], str]
    clock: TimeBase

    def curve(self, run: int, name: str, jobs: Sequence[pd.DataFrame]) -> Curve:
        """Draw the jobs of a run; the mean covers the points that all jobs have.

        Args:
            run: index of the run, which selects its color.
            name: name of the run, for the tooltips.
            jobs: one table per job.
        """
        mean = downsample(mean_curve(jobs))
        many = len(jobs) > MAX_JOB_LINES
        lines = () if many or len(jobs) == 1 else tuple(self.path(downsample(job)) for job in jobs)
        return Curve(run, self.path(mean), lines, self.band(mean) if many else "", self.marks(name, mean))

    def path(self, line: pd.DataFrame) -> str:
        """Return SVG path data through the points of a line."""
        return svg_path(self._places(line))

    def band(self, mean: pd.DataFrame) -> str:
        """Return the outline of one standard deviation around a mean, kept inside the axis."""
        # The axis covers the values of the jobs, which the mean plus or minus the deviation can exceed.
        upper = mean.assign(value=np.minimum(mean["value"] + mean["std"], self.y.high))
        lower = mean.assign(value=np.maximum(mean["value"] - mean["std"], self.y.low))
        # The lower edge runs backwards and drops its initial M: both edges form one closed outline.
        return f"{self.path(upper)}L{self.path(lower[::-1])[1:]}Z" if len(mean) else ""

    def marks(self, name: str, mean: pd.DataFrame) -> tuple[tuple[float, float, str], ...]:
        """Return x, y (drawing units) and tooltip of each point of a mean."""
        points = zip(mean["epoch"], mean["seconds"], mean["value"], mean["std"], strict=True)
        labels = (self._point_label(name, *point) for point in points)
        places = zip(self._places(mean), labels, strict=True)
        return tuple((round(x, 1), round(y, 1), text) for (x, y), text in places)

    def _places(self, line: pd.DataFrame) -> list[tuple[float, float]]:
        return list(
            zip(map(self.x.position, line[self.against]), map(self.y.position, line["value"]), strict=True)
        )

    def _point_label(self, name: str, epoch: float, seconds: float, value: float, std: float) -> str:
        spread = f" ± {self.format_value(std)}" if math.isfinite(std) else ""
        return f"{name} · epoch {round(epoch, 2):g}, {number(seconds, 3)} {self.clock.unit(name)}: {self.format_value(value)}{spread}"


def mean_curve(jobs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return epoch, mean seconds, mean value and its standard deviation at each epoch that all jobs have."""
    groups = pd.concat(list(jobs)).groupby("epoch")
    table = groups[["seconds", "value"]].mean().assign(std=groups["value"].std())
    # The mean over the remaining jobs would jump where one job ends.
    return table[groups.size() == len(jobs)].reset_index()


def downsample(line: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_CURVE_POINTS evenly spaced rows, including the last."""
    keep = np.unique(np.linspace(0, len(line) - 1, min(len(line), MAX_CURVE_POINTS)).round().astype(int))
    return line.iloc[keep]
