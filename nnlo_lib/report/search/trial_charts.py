"""Figures of the trials of a search: best objective so far, learning curves, and parallel coordinates."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pandas as pd

from nnlo_lib.core.text_format import MISSING, number, plural
from nnlo_lib.report.figure import (
    TRIAL_COLOR,
    TRIAL_PARAMS,
    ZOOM,
    Figure,
    Spec,
    ValueAxis,
    inline_data,
    thinned,
)
from nnlo_lib.report.search.study_data import SearchedParameter, StudyData
from nnlo_lib.search.best import SearchCosts, candidate_values
from nnlo_lib.search.study.trial_summary import TrialSummary, format_value, objective_rung

EpochCurve = list[tuple[float, float]]  # (epoch, value) pairs
MAX_TOTAL_POINTS = 12000  # points of all learning curves together, to bound the size of the page
MAX_AXES = 12  # keys; the least important of more keys are left out
MAX_TABLE_COLUMNS, MAX_TABLE_ROWS = 8, 30  # of the table beside the learning curves
MIN_AXIS_GAP, MAX_AXIS_GAP, PAGE_WIDTH = 118, 220, 980  # pixels; more axes than fit make the figure scroll
INACTIVE_PLACE = -0.1  # on a coordinate from 0 to 1: the trial does not have the key


def convergence_figures(data: StudyData) -> list[Figure]:
    """Return the figures of the best objective so far, by trial and by core hours.

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
) -> Figure:
    """Return a figure of the best objective so far.

    Args:
        places: horizontal position of the mark of each trial.
        candidates: position and value of the candidates for the best trial, in order; smaller values are better.
        against: label of the horizontal axis.
        end: end of the horizontal axis.
    """
    best = [data.sign * value for value in accumulate((value for _, value in candidates), min)]
    y = data.objective_axis([*(row.objective for row in data.ranked_rows), *best])
    steps = pd.DataFrame({"x": [place for place, _ in candidates], "value": best}, dtype=float)
    if best:  # without a trial that has all folds, none can be the best
        steps.loc[len(steps)] = [end, best[-1]]
    line = {
        "data": inline_data(steps.assign(y=y.drawn(steps["value"]))),
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.4, "clip": True, "color": "var(--run-0)"},
    }  # fmt: skip
    points = _trial_points(data, y, {row.number: places[row.number] for row in data.ranked_rows})
    spec = _trial_spec(points, against, y, line)
    note = _joined_notes(y.note, data.coverage_note(places))
    title = f"Best {data.metric} so far"
    return Figure(title, note, f"{title} against {against}; the table of all trials has the values.", spec)


def _trial_points(data: StudyData, y: ValueAxis, places: Mapping[int, float]) -> pd.DataFrame:
    """Return the marks of the trials in `places`, the best trial last: over the others."""
    rows = [row for row in reversed(data.ranked_rows) if row.number in places]
    objective = pd.Series([row.objective for row in rows], dtype=float)
    return pd.DataFrame(
        {
            "trial": [row.number for row in rows], "x": [places[row.number] for row in rows], "value": objective, "y": y.drawn(objective),
            "state": [trial_state(data, row) for row in rows],
            "text": [f"{data.format_objective(row)}, {plural(row.epochs, 'epoch')}, {number(row.seconds, 3)} s" for row in rows],
        }
    )  # fmt: skip


def _trial_spec(points: pd.DataFrame, x_title: str, y: ValueAxis, line: Spec) -> Spec:
    """Return a specification with a mark per trial, hollow if it was stopped; a click chooses the trial in all figures.

    Args:
        points: columns `trial`, `x`, `y`, `value`, `state` and `text`, the tooltip.
        line: layer behind the marks.
    """
    stopped = {"test": "datum.state == 'stopped'", "value": "transparent"}
    marks = {
        "mark": {"type": "point", "clip": True, "size": 40, "strokeWidth": 1.4, "filled": False, "cursor": "pointer"},
        "encoding": {
            "stroke": TRIAL_COLOR,
            "fill": {"condition": [TRIAL_COLOR["condition"][0], stopped, TRIAL_COLOR["condition"][1]], "value": TRIAL_COLOR["value"]},
            "fillOpacity": {"value": 0.6},
            "size": {"condition": {"test": "datum.trial == chosen || datum.state == 'best'", "value": 90}, "value": 36},
            "tooltip": [{"field": "trial"}, {"field": "x", "title": x_title}, {"field": "value", "format": ".5~g"}, {"field": "text", "title": "trial's result"}],
        },
    }  # fmt: skip
    x = {
        "field": "x", "type": "quantitative", "title": x_title, "scale": {"zero": x_title != "epoch", "nice": False},
        "axis": {"tickMinStep": 1} if x_title in ("trial", "epoch") else {},
    }  # fmt: skip
    return {
        "data": inline_data(points), "params": TRIAL_PARAMS, "layer": [{**line, "params": [ZOOM]}, marks], "width": "container", "height": 240,
        "encoding": {"x": x, "y": {"field": "y", "type": "quantitative", **y.encoding}},
    }  # fmt: skip


def learning_curve_figure(data: StudyData) -> Figure | None:
    """Return the metric of each trial with an objective by epoch (mean over folds).

    A mark shows where a trial was stopped, and a trial with a single epoch.
    """
    curves = {row.number: curve for row in data.ranked_rows if (curve := _fold_mean_curve(data, row.number))}
    if not curves:
        return None
    y = data.objective_axis([value for curve in curves.values() for _, value in curve])
    most = max(8, MAX_TOTAL_POINTS // len(curves))
    # Later lines are drawn over earlier ones: the best trial, first in `curves`, is drawn last.
    table = pd.DataFrame(
        [
            (trial, epoch, y.drawn(value), "best" if trial == data.best else "done")
            for trial, curve in reversed(curves.items())
            for epoch, value in thinned(curve, most)
        ],
        columns=["trial", "x", "y", "state"],
    )
    best = "datum.state == 'best' || datum.trial == chosen"
    line = {
        "data": inline_data(table),
        "mark": {"type": "line", "clip": True},
        "encoding": {
            "detail": {"field": "trial"}, "color": TRIAL_COLOR, "tooltip": {"field": "trial"},
            "opacity": {"condition": {"test": best, "value": 1}, "value": 0.35},
            "strokeWidth": {"condition": {"test": best, "value": 2.6}, "value": 1},
        },
    }  # fmt: skip
    marked = {
        row.number: curves[row.number][-1][0]
        for row in data.ranked_rows
        if row.number in curves and (row.state == "stopped" or len(curves[row.number]) == 1)
    }
    points = _trial_points(data, y, marked)
    ends = pd.Series([curves[trial][-1][1] for trial in points["trial"]], dtype=float)
    points = points.assign(value=ends, y=y.drawn(ends))
    epochs = thinned(sorted({epoch for curve in curves.values() for epoch, _ in curve}), MAX_TABLE_COLUMNS)
    rows = [
        [str(trial), *(data.format_value(dict(curve)[epoch]) if epoch in dict(curve) else MISSING for epoch in epochs)]
        for trial, curve in [*curves.items()][:MAX_TABLE_ROWS]
    ]  # fmt: skip
    note = _joined_notes(y.note, data.coverage_note(curves))
    headings = ["trial", *(f"epoch {epoch:.5g}" for epoch in epochs)]
    spec = _trial_spec(points, "epoch", y, line)
    return Figure(
        f"{data.metric} by epoch", note, f"{data.metric} of each trial by epoch.", spec, headings, rows
    )


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


def _joined_notes(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def trial_state(data: StudyData, row: TrialSummary) -> str:
    """Return what the mark of a trial shows: `best`, `stopped` or `done`."""
    return "best" if row.number == data.best else "stopped" if row.state == "stopped" else "done"


def count_single_epoch_trials(data: StudyData) -> int:
    """Return the number of trials that the learning curves show as a mark only, for lack of a second epoch."""
    return sum(len(_fold_mean_curve(data, row.number)) == 1 for row in data.ranked_rows)


def parallel_coordinates(data: StudyData, keys: Sequence[SearchedParameter]) -> Figure | None:
    """Return the figure of the trials with an objective; None without keys or with fewer than two trials.

    One view per pair of neighbors, from one axis to the next; drag on an axis selects its values, and the trials that
    all selections contain stay visible.
    """
    rows, kept = data.ranked_rows, keys[:MAX_AXES]
    if len(rows) < 2 or not kept:
        return None
    y = data.objective_axis([row.objective for row in rows])
    columns = [
        [key.coordinate(row.point[key.name]) if key.name in row.point else math.nan for row in rows]
        for key in kept
    ]
    columns.append(
        [
            math.log(value) if y.encoding["scale"].get("type") == "log" else value
            for value in y.drawn(pd.Series([row.objective for row in rows], dtype=float))
        ]
    )
    table = pd.DataFrame(
        {"trial": [row.number for row in rows], "state": [trial_state(data, row) for row in rows]}
    )
    views: list[Spec] = []
    width = max(MIN_AXIS_GAP, min(MAX_AXIS_GAP, PAGE_WIDTH // len(kept)))
    names = [*(key.short_name for key in kept), data.metric]
    selected = {"and": [{"param": f"b{place}"} for place in range(len(names))]}
    for place, (name, values) in enumerate(zip(names, columns, strict=True)):
        numbers = pd.Series(values, dtype=float)
        low, high = numbers.min(), numbers.max()
        table[f"v{place}"] = ((numbers - low) / ((high - low) or 1)).fillna(INACTIVE_PLACE)
        # Labels at places where trials are, so that no scale needs to be inverted.
        found = {
            table[f"v{place}"][row]: data.format_value(each.objective)
            if place == len(kept)
            else format_value(each.point[kept[place].name])
            for row, each in enumerate(rows)
            if not math.isnan(values[row])
        }
        ticks = thinned(sorted(found), 5)
        texts = {f"{tick:.5g}": found[tick] for tick in ticks}
        axis = {
            "values": ticks, "title": None, "grid": False, "labelLimit": 90, "domain": True, "domainColor": "var(--soft)",
            "labelExpr": f"({json.dumps(texts)})[format(datum.value, '.5~g')] || ''",
        }  # fmt: skip
        is_last = place == len(kept)
        mark: Spec = {"type": "tick"} if is_last else {"type": "rule"}
        encoding: Spec = {
            "y": {"field": f"v{place}", "type": "quantitative", "axis": axis, "scale": {"domain": [INACTIVE_PLACE * 1.3, 1.02], "nice": False, "padding": 0}},
            "color": TRIAL_COLOR, "tooltip": [{"field": "trial"}, {"field": "text", "title": "settings"}],
            "opacity": {"condition": {"test": selected, "value": 0.6}, "value": 0.05},
            "strokeWidth": {"condition": {"test": "datum.state == 'best' || datum.trial == chosen", "value": 3}, "value": 1},
        }  # fmt: skip
        if not is_last:
            encoding |= {"x": {"value": 0}, "x2": {"value": width}, "y2": {"field": f"v{place + 1}"}}
        views.append({
            "width": 12 if is_last else width, "height": 250, "mark": mark, "encoding": encoding,
            "title": {"text": name, "anchor": "start", "frame": "group", "fontSize": 11, "limit": width - 10, "fontWeight": "normal"},
            "params": [{"name": f"b{place}", "select": {"type": "interval", "encodings": ["y"]}}],
        })  # fmt: skip
    table["text"] = [
        ", ".join(f"{key} {format_value(value)}" for key, value in row.point.items()) for row in rows
    ]
    # Later lines are drawn over earlier ones: the best trial is drawn last.
    spec = {
        "data": inline_data(table[::-1]), "params": TRIAL_PARAMS, "hconcat": views, "spacing": 0, "bounds": "flush",
        "autosize": "pad",
    }  # fmt: skip
    note = "" if len(kept) == len(keys) else f"not shown: {plural(len(keys) - len(kept), 'key')}"
    return Figure(
        "Parallel coordinates of the trials",
        note,
        f"One line per trial through the values of {', '.join(names)}; the table of all trials has the values.",
        spec,
    )
