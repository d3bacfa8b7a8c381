"""The curve of one run: its mean, and a line per job or a band, as SVG path data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nnlo_lib.core.text_format import number
from nnlo_lib.report.charts.axis import Axis
from nnlo_lib.report.time_base import TimeBase

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
class CurveDrawer:
    """Converts tables with columns `epoch`, `seconds` and `value` to SVG paths.

    Attributes:
        x: horizontal axis.
        y: vertical axis.
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
            run: index of the run.
            name: name of the run, for the tooltips.
            jobs: one table per job.
        """
        mean = downsample(mean_curve(jobs))
        many = len(jobs) > MAX_JOB_LINES
        lines = () if many or len(jobs) == 1 else tuple(self.path(downsample(job)) for job in jobs)
        return Curve(run, self.path(mean), lines, self.band(mean) if many else "", self.marks(name, mean))

    def path(self, line: pd.DataFrame) -> str:
        """Return SVG path data through the points of a line."""
        places = zip(
            map(self.x.position, line[self.against]), map(self.y.position, line["value"]), strict=True
        )
        return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places) if len(line) else ""

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
        places = zip(
            map(self.x.position, mean[self.against]), map(self.y.position, mean["value"]), strict=True
        )
        return tuple((round(x, 1), round(y, 1), text) for (x, y), text in zip(places, labels, strict=True))

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
