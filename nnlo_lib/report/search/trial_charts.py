"""Charts of the trials of a search: the best objective so far, learning curves, rungs, and parallel coordinates."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pandas as pd

from nnlo_lib.core.text_format import number
from nnlo_lib.report import chart
from nnlo_lib.report.chart import Axis, Chart, Line, Mark, svg_path, svg_step_path
from nnlo_lib.report.formatting import plural
from nnlo_lib.report.learning_curves import AXIS_INSET, LEFT, RIGHT
from nnlo_lib.report.search.study_data import SearchedParameter, StudyData, named
from nnlo_lib.search.best import SearchCosts, candidate_values
from nnlo_lib.search.study.trial_summary import TrialSummary, format_value, objective_rung

EpochCurve = list[tuple[float, float]]  # (epoch, value) pairs
MAX_TOTAL_POINTS = 12000  # points of all learning curves together, to bound the size of the page
# Parallel coordinates, in drawing units.
TOP, BOTTOM, INACTIVE_Y = 44, 296, 320
MIN_WIDTH, PAGE, MARGIN, NARROW, WIDE = 720, 1104, 64, 115, 220
MAX_THICK_LINES = 120  # lines; above this number, all lines are thin
MAX_AXES = 12  # keys; the least important of more keys are left out
SHADES = 5


def convergence_charts(data: StudyData) -> list[Chart]:
    """Return the charts of the best objective so far, by trial and by core hours.

    All trials with an objective are marks. The line is the best of the trials among which the best one is chosen: trials
    with all folds and, if the last epoch counts, of the highest rung only.
    """
    if not data.ranked_rows:
        return []
    known, costs = data.study.snapshot, SearchCosts(data.study.snapshot)
    trials = {row.number: float(row.number) for row in data.ranked_rows}
    # The fold tasks of the rung that gave the objective, whose last result made it known.
    hours = {
        row.number: costs.until(known.fold_tasks(row.number, objective_rung(known, row.number)))
        for row in data.ranked_rows
    }
    values = candidate_values(known)
    final = {each.trial: each for each in values}
    by_trial = [(float(trial), final[trial].value) for trial in sorted(final)]
    by_hours = [(each.core_hours, each.value) for each in values]
    return [
        _convergence(data, trials, by_trial, "trial", len(data.rows) - 1),
        _convergence(data, hours, by_hours, "core hours", costs.total),
    ]


def _convergence(
    data: StudyData,
    places: Mapping[int, float],
    candidates: Sequence[tuple[float, float]],
    against: str,
    end: float,
) -> Chart:
    """Return a chart of the best objective so far.

    Args:
        places: horizontal position of the mark of each trial.
        candidates: position and value of the candidates for the best trial, in order; smaller values are better.
        against: label of the horizontal axis.
        end: end of the horizontal axis.
    """
    rows = sorted(data.ranked_rows, key=lambda row: row.number)
    best = [data.sign * value for value in accumulate((value for _, value in candidates), min)]
    y, note = data.objective_axis(pd.Series([*(row.objective for row in rows), *best], dtype=float))
    make_axis = chart.integer if against == "trial" else chart.linear
    x = make_axis([0.0, *places.values(), end], LEFT + AXIS_INSET, RIGHT - AXIS_INSET)
    steps = [
        (x.position(place), y.position(value)) for (place, _), value in zip(candidates, best, strict=True)
    ]
    marks = [
        Mark(
            round(x.position(places[row.number]), 1),
            round(y.position(row.objective), 1),
            trial_css_class(data, row),
            f"{named(row)}: {data.format_objective(row)}, {plural(row.epochs, 'epoch')}, {number(row.seconds, 3)} s",
        )
        for row in rows
    ]
    # Without a trial that has all folds, none can be the best.
    lines = (Line(svg_step_path(steps, x.position(end)), "leader"),) if steps else ()
    return Chart(
        f"Best {data.metric} so far", _joined_notes(note, data.coverage_note(places)),
        against, x, y, lines, tuple(marks),
    )  # fmt: skip


def learning_curve_chart(data: StudyData) -> Chart | None:
    """Return the metric of each trial with an objective by epoch (mean over folds).

    A mark shows where a trial was stopped, and a trial with a single epoch.
    """
    curves = {row.number: curve for row in data.ranked_rows if (curve := _fold_mean_curve(data, row.number))}
    if not curves:
        return None
    points = [point for curve in curves.values() for point in curve]
    y, note = data.objective_axis(pd.Series([value for _, value in points]))
    x = chart.integer([epoch for epoch, _ in points], LEFT + AXIS_INSET, RIGHT - AXIS_INSET)
    points_per_curve = max(8, MAX_TOTAL_POINTS // len(curves))
    drawn = [
        Line(
            svg_path(
                [(x.position(epoch), y.position(value)) for epoch, value in _thin(curve, points_per_curve)]
            ),
            "leader" if trial == data.best else "trial",
            f"trial {trial}",
        )
        # SVG paints later lines over earlier ones: the best trial, first in `curves`, is drawn last.
        for trial, curve in reversed(curves.items())
    ]
    marks = [
        _end(x, y, data, row, curves[row.number])
        # The best trial is drawn last.
        for row in reversed(data.ranked_rows)
        if row.number in curves and (row.state == "stopped" or len(curves[row.number]) == 1)
    ]
    notes = _joined_notes(note, data.coverage_note(curves))
    return Chart(f"{data.metric} by epoch", notes, "epoch", x, y, tuple(drawn), tuple(marks))


def _fold_mean_curve(data: StudyData, trial: int) -> EpochCurve:
    """Return the metric by epoch: the mean over the folds that have a value at the epoch.

    If not all folds have one, because the trial was pruned or folds ended early, the effects of the folds are removed.
    """
    known, values = data.study.snapshot, defaultdict[int, dict[int, float]](dict)
    rung = data.highest_rung(trial)
    for fold_task in known.fold_tasks(trial, rung):
        for row in known.results[fold_task].rows if fold_task in known.results else ():
            value = row.get(data.metric)
            if value is not None and math.isfinite(value):
                values[int(row["epoch"])][fold_task.fold] = data.sign * value
    effects = known.fold_effects(rung)
    return [(float(epoch), data.sign * effects.adjusted_mean(values[epoch])) for epoch in sorted(values)]


def _thin(curve: EpochCurve, most: int) -> EpochCurve:
    """Return about `most` points of a curve (fewer than twice as many), including the last."""
    # The last point carries the mark of a stopped trial, so it is always kept.
    return [*curve[: -1 : max(1, len(curve) // most)], curve[-1]]


def _end(x: Axis, y: Axis, data: StudyData, row: TrialSummary, curve: EpochCurve) -> Mark:
    epoch, value = curve[-1]
    what = "stopped after" if row.state == "stopped" else "has"
    text = f"{named(row)} {what} {plural(round(epoch), 'epoch')}: {data.format_value(value)}"
    css_class = "stopped" if row.state == "stopped" else trial_css_class(data, row)
    return Mark(round(x.position(epoch), 1), round(y.position(value), 1), css_class, text)


def _joined_notes(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def trial_css_class(data: StudyData, row: TrialSummary) -> str:
    """Return the CSS class of the mark of a trial."""
    return "best" if row.number == data.best else "stopped" if row.state == "stopped" else "done"


def count_single_epoch_trials(data: StudyData) -> int:
    """Return the number of trials that the learning curves show as a mark only, for lack of a second epoch."""
    return sum(len(_fold_mean_curve(data, row.number)) == 1 for row in data.ranked_rows)


def rung_table(data: StudyData) -> list[tuple[int, int, str]]:
    """Return epochs, number of trials and best value of each rung; empty for fewer than two rungs."""
    known = data.study.snapshot
    found = {epochs for trial in known.trials for epochs in known.rungs(trial.number)}
    if len(found) < 2:
        return []
    table = []
    for epochs in sorted(found):
        means = {trial.number: known.mean_value(trial.number, epochs) for trial in known.trials}
        values = {trial: mean for trial, mean in means.items() if mean is not None and math.isfinite(mean)}
        if values:
            # Trials that lack folds count only if no trial has all of them.
            complete = [value for trial, value in values.items() if known.is_complete(trial, epochs)]
            # Snapshot values are multiplied by `sign`, so that smaller is better.
            best = data.sign * min(complete or values.values())
            table.append((epochs, len(values), data.format_value(best)))
    return table


@dataclass(frozen=True)
class CoordinateAxis:
    """One vertical axis.

    Attributes:
        x: horizontal position, in drawing units.
        without: whether the key is missing in some trial.
    """

    x: float
    name: str
    short: str
    axis: Axis
    without: bool = False


@dataclass(frozen=True)
class ParallelCoordinates:
    """The chart.

    Attributes:
        width: width in drawing units.
        uprights: one axis per key, then the objective.
        lines: one per trial, the best last.
        dense: whether the lines are drawn thin because there are more than MAX_THICK_LINES.
        left_out: number of keys without an axis.
    """

    width: int
    uprights: tuple[CoordinateAxis, ...]
    lines: tuple[Line, ...]
    dense: bool
    left_out: int

    @property
    def without(self) -> bool:
        """Whether a key with an axis is missing in some trial."""
        return any(upright.without for upright in self.uprights)


def parallel_coordinates(data: StudyData, keys: Sequence[SearchedParameter]) -> ParallelCoordinates | None:
    """Return the chart of the trials with an objective; None without keys or with fewer than two trials."""
    rows, kept = data.ranked_rows, keys[:MAX_AXES]
    if len(rows) < 2 or not kept:
        return None
    # Wide spacing only up to the width of the page; beyond it, narrow spacing, and the chart scrolls.
    width = max(MIN_WIDTH, min(PAGE, 2 * MARGIN + WIDE * len(kept)), 2 * MARGIN + NARROW * len(kept))
    places = [MARGIN + (width - 2 * MARGIN - 20) * number / len(kept) for number in range(len(kept) + 1)]
    uprights = [
        CoordinateAxis(
            x, key.name, key.short_name, _axis(key, rows), any(key.name not in row.point for row in rows)
        )
        # The objective has the additional last place.
        for x, key in zip(places, kept, strict=False)
    ]
    objective = pd.Series([row.objective for row in rows], dtype=float)
    last = _stretched_axis(data.objective_axis(objective)[0])
    uprights.append(CoordinateAxis(places[-1], data.metric, data.metric, last))
    lines = [_line(data, row, rank * SHADES // len(rows), kept, uprights) for rank, row in enumerate(rows)]
    # SVG paints later lines over earlier ones: the best trial is drawn last.
    return ParallelCoordinates(
        width, tuple(uprights), tuple(reversed(lines)), len(rows) > MAX_THICK_LINES, len(keys) - len(kept)
    )


def _axis(key: SearchedParameter, rows: Sequence[TrialSummary]) -> Axis:
    numbers = [key.to_number(row.point[key.name]) for row in rows if key.name in row.point]
    return key.axis(numbers or [0.0, 1.0], BOTTOM, TOP)


def _stretched_axis(found: Axis) -> Axis:
    """Return the axis stretched to the range from BOTTOM to TOP."""
    share = [(place - found.start) / (found.end - found.start) for place, _ in found.ticks]
    labels = [label for _, label in found.ticks]
    ticks = tuple((BOTTOM + part * (TOP - BOTTOM), label) for part, label in zip(share, labels, strict=True))
    return Axis(found.low, found.high, BOTTOM, TOP, found.scale, ticks)


def _line(
    data: StudyData,
    row: TrialSummary,
    shade: int,
    keys: Sequence[SearchedParameter],
    uprights: Sequence[CoordinateAxis],
) -> Line:
    heights = [
        # A trial without the key passes below its axis.
        upright.axis.position(key.to_number(row.point[key.name])) if key.name in row.point else INACTIVE_Y
        for key, upright in zip(keys, uprights, strict=False)
    ]
    heights.append(uprights[-1].axis.position(row.objective))
    points = [(upright.x, height) for upright, height in zip(uprights, heights, strict=True)]
    settings = ", ".join(f"{key} {format_value(value)}" for key, value in row.point.items())
    css_class = "leader" if row.number == data.best else f"shade-{shade}"
    return Line(svg_path(points), css_class, f"{named(row)}: {data.format_value(row.objective)}; {settings}")
