"""How a search went on: the best so far, and what the epochs of each trial gave."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from statistics import fmean

import pandas as pd

from nnlo_lib.report import axis
from nnlo_lib.report.axis import Axis
from nnlo_lib.report.drawing import Chart, Line, Mark, path, steps
from nnlo_lib.report.plots import INSET, LEFT, RIGHT
from nnlo_lib.report.search_data import SearchData, named
from nnlo_lib.report.words import number
from nnlo_lib.search.row import Row

Curve = list[tuple[float, float]]  # epochs and values

POINTS = 12000  # of all learning curves together; more make the page heavy


def convergence(data: SearchData) -> list[Chart]:
    """Return the best so far by trial, and by core hours."""
    if not data.worthy:
        return []
    known = sorted(data.worthy, key=lambda row: row.number)
    hours = dict(
        zip((row.number for row in data.rows), accumulate(row.core_hours for row in data.rows), strict=True)
    )
    by_trial = _convergence(data, known, [row.number for row in known], "trial", len(data.rows) - 1)
    return [
        by_trial,
        _convergence(data, known, [hours[row.number] for row in known], "core hours", max(hours.values())),
    ]


def _convergence(
    data: SearchData, known: Sequence[Row], places: Sequence[float], against: str, end: float
) -> Chart:
    values = pd.Series([row.objective for row in known], dtype=float)
    y, note = data.vertical(values)
    lay = axis.whole if against == "trial" else axis.linear
    x = lay([0.0, *places, end], LEFT + INSET, RIGHT - INSET)
    best = list(accumulate(values, min if data.sign > 0 else max))
    line = steps([(x.place(a), y.place(b)) for a, b in zip(places, best, strict=True)], x.place(end))
    marks = [
        Mark(round(x.place(place), 1), round(y.place(row.objective), 1), look(data, row), _said(data, row))
        for place, row in zip(places, known, strict=True)
    ]  # fmt: skip
    return Chart(f"Best {data.metric} so far", note, against, x, y, (Line(line, "leader"),), tuple(marks))


def learning(data: SearchData) -> Chart | None:
    """Return what each trial reached after each epoch, the mean over its folds; those that ended early end with a dot."""
    curves = {row.number: curve for row in data.worthy if (curve := _means(data, row.number))}
    if not curves:
        return None
    points = [point for curve in curves.values() for point in curve]
    y, note = data.vertical(pd.Series([value for _, value in points]))
    x = axis.whole([epoch for epoch, _ in points], LEFT + INSET, RIGHT - INSET)
    most = max(8, POINTS // len(curves))
    drawn = [
        Line(_path(x, y, _thin(curve, most)), _stroke(data, trial), f"trial {trial}")
        for trial, curve in reversed(curves.items())
    ]
    marks = [
        _end(x, y, row, curves[row.number][-1])
        for row in data.worthy
        if row.state == "stopped" and row.number in curves
    ]
    return Chart(f"{data.metric} by epoch", note, "epoch", x, y, tuple(drawn), tuple(marks))


def _path(x: Axis, y: Axis, curve: Curve) -> str:
    return path([(x.place(epoch), y.place(value)) for epoch, value in curve])


def _end(x: Axis, y: Axis, row: Row, end: tuple[float, float]) -> Mark:
    said = f"{named(row)} stopped after {end[0]:.0f} epochs"
    return Mark(round(x.place(end[0]), 1), round(y.place(end[1]), 1), "stopped", said)


def rungs(data: SearchData) -> list[tuple[int, int, str]]:
    """Return for each rung how many trials came to it and the best there; nothing where all were trained to the end."""
    known = data.record.known
    found = {epochs for trial in known.trials for epochs in known.rungs(trial.number)}
    if len(found) < 2:
        return []
    return [
        (epochs, len(values), data.say(data.sign * min(values)))
        for epochs in sorted(found)
        if (values := list(_values(data, epochs)))
    ]


def _values(data: SearchData, epochs: int) -> Iterator[float]:
    known = data.record.known
    for trial in known.trials:
        value = known.value(trial.number, epochs)
        if value is not None and math.isfinite(value):
            yield value


def _means(data: SearchData, trial: int) -> Curve:
    """Return epochs and the mean of the folds that have a value there."""
    known, values = data.record.known, defaultdict[int, list[float]](list)
    for leaf in known.leaves(trial, data.top(trial)):
        for row in known.results[leaf].rows if leaf in known.results else ():
            value = row.get(data.metric)
            if value is not None and math.isfinite(value):
                values[int(row["epoch"])].append(value)
    return [(float(epoch), fmean(values[epoch])) for epoch in sorted(values)]


def _thin(curve: Curve, most: int) -> Curve:
    """Keep so many points, the last always."""
    return [*curve[: -1 : max(1, len(curve) // most)], curve[-1]]


def _stroke(data: SearchData, trial: int) -> str:
    return "leader" if trial == data.best else "trial"


def look(data: SearchData, row: Row) -> str:
    """Return how the mark of a trial looks."""
    return "best" if row.number == data.best else "stopped" if row.state == "stopped" else "done"


def _said(data: SearchData, row: Row) -> str:
    return f"{named(row)}: {data.with_error(row)}, {row.epochs} epochs, {number(row.seconds, 3)} s"
