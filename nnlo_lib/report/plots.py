"""Learning curves, as what the page draws: a panel per metric, with axes and a curve per run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nnlo_lib.report import axis
from nnlo_lib.report.axis import Axis
from nnlo_lib.report.clock import Clock
from nnlo_lib.report.curve import Curve, Pen
from nnlo_lib.report.job import Job, by_run
from nnlo_lib.report.words import number, percent

WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 448, 12, 246  # the plotted area
INSET = 6  # of the first and last value
STEEP = 8  # ratio of largest to smallest loss from which orders of magnitude matter


@dataclass(frozen=True)
class Panel:
    """A chart: title, a note on its scale, axes and a curve per run."""

    title: str
    note: str
    against: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]


def panels(jobs: Sequence[Job], clock: Clock) -> list[Panel]:
    """Return a panel per metric against epochs, and the main metric against seconds."""
    names = _metrics(jobs)
    chosen = [(name, "epoch") for name in [*names, "consensus_error"]]
    chosen += [(name, "seconds") for name in names[-1:]]
    drawn = (_panel(jobs, name, against, clock) for name, against in chosen)
    return [panel for panel in drawn if panel is not None]


def _metrics(jobs: Sequence[Job]) -> list[str]:
    """Choose what to draw, the main metric last: losses, then the others, on validation data if there is any."""
    frames = [job.history for job in jobs]
    columns = {str(name) for frame in frames for name in frame if frame[name].notna().any()}
    names = {name.split("_", 1)[1] for name in columns if name.startswith(("train_", "val_"))}
    names = {name for name in names if not _over_nodes(name, names)}
    others = [f"val_{name}" if f"val_{name}" in columns else f"train_{name}" for name in names - {"loss"}]
    losses = [name for name in ("train_loss", "val_loss") if name in columns]
    common = {name for name in others if all(name in frame for frame in frames)}
    return losses + sorted(
        others, key=lambda name: (name.split("_", 1)[1] == "accuracy", name in common, name)
    )


def _over_nodes(name: str, names: set[str]) -> bool:
    """Say whether a name is that of the smallest or largest value over nodes of another."""
    return name.endswith(("_min", "_max")) and name[: -len("_min")] in names


def _panel(jobs: Sequence[Job], metric: str, against: str, clock: Clock) -> Panel | None:
    runs = {run: _lines(group, metric) for run, group in by_run(jobs).items()}
    lines = [line for group in runs.values() for line in group]
    if not lines:
        return None
    known = pd.concat(lines)
    y, note, say = vertical(metric, known["value"])
    pen = Pen(_horizontal(against, known[against]), y, against, say, clock)
    curves = tuple(pen.curve(place, run, runs[run]) for place, run in enumerate(runs) if runs[run])
    return Panel(_title(metric), note, _name(against, clock), pen.x, y, curves)


def _name(against: str, clock: Clock) -> str:
    if against == "epoch":
        return "epoch"
    return "time (s): virtual or measured" if clock.mixed else f"{clock.word or 'training'} time (s)"


def _title(metric: str) -> str:
    split, name = metric.split("_", 1)
    if split == "consensus":
        return "Distance of the nodes to their mean"
    return f"{'Training' if split == 'train' else 'Validation'} {name.replace('_', ' ')}"


def _lines(jobs: Iterable[Job], metric: str) -> list[pd.DataFrame]:
    """Return epoch, seconds and value of each job that has the metric, without what is not a number."""
    frames = [job.history[["epoch", "seconds", metric]] for job in jobs if metric in job.history]
    known = [frame.set_axis(["epoch", "seconds", "value"], axis=1).astype(float) for frame in frames]
    finite = [frame[np.isfinite(frame["value"])] for frame in known]
    return [frame for frame in finite if len(frame)]


def _horizontal(against: str, values: "pd.Series[float]") -> Axis:
    if against == "epoch":
        return axis.whole(values, LEFT + INSET, RIGHT - INSET)
    return axis.linear([0.0, *values], LEFT, RIGHT - INSET)


def vertical(metric: str, values: "pd.Series[float]") -> tuple[Axis, str, Callable[[float], str]]:
    """Return an axis for values of a metric, a note on its scale, and what writes a value."""
    low, high, ends = values.min(), values.max(), (BOTTOM - INSET, TOP + INSET)
    if metric.endswith("accuracy") and low >= 0 and high <= 1:
        return axis.accuracy(values, *ends), "log scale of the error", percent
    if low > 0 and high / low > STEEP:
        return axis.logarithmic(values, *ends), "log scale", number
    return axis.linear(values, *ends), "", number
