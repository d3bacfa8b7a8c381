"""Figures of the trials of a search: best objective so far, learning curves, and parallel coordinates."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pandas as pd

from nnlo_lib.core.text_format import number, plural
from nnlo_lib.report.figure import (
    SOFT,
    WHOLE_TICKS,
    ZOOM,
    Figure,
    Spec,
    ValueAxis,
    inline_data,
    layer,
    panel,
    quantitative,
    thinned,
    value_axis,
    value_if,
)
from nnlo_lib.report.search.study_data import SearchedParameter, StudyData
from nnlo_lib.search.study.trial_summary import TrialSummary, format_value

MAX_TOTAL_POINTS = 12000  # points of all learning curves together, to bound the size of the page
MAX_AXES = 12  # keys; the least important of more keys are left out
MIN_AXIS_GAP, MAX_AXIS_GAP, PAGE_WIDTH = 118, 320, 1200  # pixels; more axes than fit make the figure scroll
INACTIVE_PLACE = -0.1  # on a coordinate from 0 to 1: the trial does not have the key
PARAMS = [{"name": "chosen", "value": -1}]
IS_CHOSEN = {"test": "datum.trial == chosen", "value": "var(--run-1)"}
IS_BEST = {"test": "datum.state == 'best' || datum.state == 'front'", "value": "var(--run-0)"}
COLOR = {"condition": [IS_CHOSEN, IS_BEST], "value": SOFT}
IS_STRONG = "datum.trial == chosen || datum.state == 'best'"


def convergence_figure(data: StudyData) -> Figure | None:
    """Return the figure of the best objective so far; None without a trial that has an objective.

    All trials with an objective are marks. The line is the best of the trials among which the best one is chosen: trials
    with all folds and, if the last epoch counts, of the highest rung only.
    """
    if not data.ranked_rows:
        return None
    known = data.study.snapshot
    # The value of a higher rung replaces that of a lower one.
    final = {
        trial: known.mean_value(trial, rung) or 0.0
        for rung in sorted(known.eligible_rungs)
        for trial in known.complete_trials[rung]
    }
    best = [data.sign * value for value in accumulate((final[trial] for trial in sorted(final)), min)]
    y = data.objective_axis([*(row.objective for row in data.ranked_rows), *best])
    # Without a trial that has all folds, none can be the best, and nothing reaches to the end.
    x = [*map(float, sorted(final)), *[len(data.rows) - 1.0] * bool(best)]
    line = _steps(x, y.drawn(pd.Series([*best, *best[-1:]], dtype=float)))
    marks = _trial_points(data, y, {row.number: float(row.number) for row in data.drawn_rows})
    title = f"Best {data.metric} so far"
    text = f"{title} against trial; the table of all trials has the values."
    return Figure(title, data.coverage_note(y.note), text, _trial_spec(marks, "trial", y, line))


def front_figures(data: StudyData) -> list[Figure]:
    """Return a figure of the first objective against each further one; with two objectives, a line along the front."""
    known, figures = data.study.snapshot, []
    rows = {row.number: row for row in data.ranked_rows if row.others and math.isfinite(sum(row.others))}
    y = data.objective_axis([row.objective for row in rows.values()])
    for place, other in enumerate(known.search.objectives[1:] if known.front else ()):
        x = value_axis(other.metric, pd.Series([row.others[place] for row in rows.values()]), "x")
        drawn = {trial: x.drawn(row.others[place]) for trial, row in rows.items()}
        # From the best value on the horizontal axis; what lies behind the line is dominated.
        front = [*reversed(known.front)] if len(known.search.objectives) == 2 else []
        line = _steps([drawn[each] for each in front], [y.drawn(rows[each].objective) for each in front])
        spec = _trial_spec(_trial_points(data, y, drawn), other.metric, y, line, x.encoding)
        title, scale = f"{data.metric} against {other.metric}", x.note and f"{other.metric}: {x.note}"
        note = "; ".join(filter(None, [data.coverage_note(y.note), scale]))
        figures.append(Figure(title, note, f"{title}; the table of the front has the values.", spec))
    return figures


def _steps(x: Sequence[float], y: Sequence[float]) -> Spec:
    """Return the layer of a line with steps through points, in their order."""
    table = pd.DataFrame({"turn": range(len(x)), "x": x, "y": y})
    look = {"interpolate": "step-after", "strokeWidth": 2.4, "clip": True, "color": "var(--run-0)"}
    return layer("line", {"order": quantitative("turn")}, **look) | {"data": inline_data(table)}


def _trial_points(data: StudyData, y: ValueAxis, places: Mapping[int, float]) -> pd.DataFrame:
    """Return the marks of the trials in `places`, the best trial last: over the others."""
    rows = [row for row in reversed(data.drawn_rows) if row.number in places]
    objective = pd.Series([row.objective for row in rows], dtype=float)
    texts = [
        f"{data.format_objective(row)}, {plural(row.epochs, 'epoch')}, {number(row.seconds, 3)} s"
        for row in rows
    ]
    columns = {"trial": [row.number for row in rows], "x": [places[row.number] for row in rows]}
    columns |= {"state": [trial_state(data, row) for row in rows], "text": texts}
    return pd.DataFrame(columns).assign(value=objective, y=y.drawn(objective))


def _trial_spec(
    points: pd.DataFrame, x_title: str, y: ValueAxis, line: Spec, x_encoding: Spec | None = None
) -> Spec:
    """Return a specification with a mark per trial, hollow if it was stopped; a click chooses the trial in all figures.

    `points`: columns `trial`, `x`, `y`, `value`, `state` and `text`, the tooltip; `line`: layer behind the marks.
    """
    is_stopped = {"test": "datum.state == 'stopped'", "value": "transparent"}
    tips = [{"field": "trial"}, {"field": "x", "title": x_title}, {"field": "value", "format": ".5~g"}]
    mark = {
        "stroke": COLOR,
        "fill": {"condition": [IS_CHOSEN, is_stopped, IS_BEST], "value": SOFT},
        "fillOpacity": {"value": 0.6},
        "size": value_if(IS_STRONG, 90, 36),
        "tooltip": [*tips, {"field": "text", "title": "trial's result"}],
    }
    look = {"clip": True, "size": 40, "strokeWidth": 1.4, "filled": False, "cursor": "pointer"}
    axis = WHOLE_TICKS if x_title in ("trial", "epoch") else {}
    scale = {"zero": x_title != "epoch", "nice": False}
    x = quantitative("x", **(x_encoding or {"scale": scale, "axis": axis}))
    x["axis"] = x["axis"] | {"title": x_title}
    layers = [{**line, "params": [ZOOM]}, layer("point", mark, **look)]
    encoding = {"x": x, "y": quantitative("y", **y.encoding)}
    return panel(points, layers, 240, params=PARAMS, encoding=encoding)


def learning_curve_figure(data: StudyData) -> Figure | None:
    """Return the metric of each trial with an objective by epoch (mean over folds).

    A mark shows where a trial was stopped, and a trial with a single epoch.
    """
    curves = {row.number: curve for row in data.drawn_rows if (curve := fold_mean_curve(data, row.number))}
    if not curves:
        return None
    y = data.objective_axis([value for curve in curves.values() for _, value in curve])
    most = max(8, MAX_TOTAL_POINTS // len(curves))
    # Later lines are drawn over earlier ones: the best trial, first in `curves`, is drawn last.
    drawn = [
        (trial, epoch, y.drawn(value), "best" if trial == data.best else "done")
        for trial, curve in reversed(curves.items())
        for epoch, value in thinned(curve, most)
    ]
    encoding = {
        "detail": {"field": "trial"},
        "color": COLOR,
        "tooltip": {"field": "trial"},
        "opacity": value_if(IS_STRONG, 1, 0.35),
        "strokeWidth": value_if(IS_STRONG, 2.6, 1),
    }
    table = pd.DataFrame(drawn, columns=["trial", "x", "y", "state"])
    line = layer("line", encoding, clip=True) | {"data": inline_data(table)}
    ends = {
        row.number: curves[row.number][-1]
        for row in data.drawn_rows
        if row.number in curves and (row.state == "stopped" or len(curves[row.number]) == 1)
    }
    points = _trial_points(data, y, {trial: epoch for trial, (epoch, _) in ends.items()})
    last = pd.Series([ends[trial][1] for trial in points["trial"]], dtype=float)
    spec = _trial_spec(points.assign(value=last, y=y.drawn(last)), "epoch", y, line)
    title = f"{data.metric} by epoch"
    text = f"{title}, a mean over the folds of each trial; the table of all trials has the objectives."
    return Figure(title, data.coverage_note(y.note), text, spec)


def fold_mean_curve(data: StudyData, trial: int) -> list[tuple[float, float]]:
    """Return the metric by epoch, from the last epoch of a parent: the mean over the folds that have a value at the epoch.

    If not all folds have one, because the trial was pruned or folds ended early, the effects of the folds are removed.
    """
    known, values = data.study.snapshot, defaultdict[int, dict[int, float]](dict)
    # The highest rung at which a fold has a result.
    rungs = (epochs for epochs in reversed(known.rungs(trial)) if known.fold_values(trial, epochs))
    rung, start = next(rungs, 0), known.lineage(trial)[trial]
    for fold_task in known.fold_tasks(trial, rung):
        for row in known.results[fold_task].rows if fold_task in known.results else ():
            value = row.get(data.metric)
            if value is not None and math.isfinite(value) and row["epoch"] >= start:
                values[int(row["epoch"])][fold_task.fold] = data.sign * value
    effects = known.fold_effects(rung)
    return [(float(epoch), data.sign * effects.adjusted_mean(values[epoch])) for epoch in sorted(values)]


def trial_state(data: StudyData, row: TrialSummary) -> str:
    """Return what the mark of a trial shows: `best`, `front`, `stopped` or `done`."""
    other = "front" if row.on_front else "stopped" if row.state == "stopped" else "done"
    return "best" if row.number == data.best else other


def parallel_coordinates(data: StudyData, keys: Sequence[SearchedParameter]) -> Figure | None:
    """Return the figure of the trials with an objective; None without keys or with fewer than two trials.

    One view per pair of neighbors, from one axis to the next; drag on an axis selects its values, and the trials that
    all selections contain stay visible.
    """
    rows, kept = data.drawn_rows, keys[:MAX_AXES]
    if len(rows) < 2 or not kept:
        return None
    objectives = pd.Series([row.objective for row in rows], dtype=float)
    y = data.objective_axis(list(objectives))
    # Name of each axis, and by trial the place and the text of its value.
    axes = []
    for key in kept:
        found = [row.point.get(key.name) for row in rows]
        texts = [f"{each:.3g}" if isinstance(each, float) else format_value(each) for each in found]
        axes.append((key.short_name, [key.coordinate(row.point) for row in rows], texts))
    up = -1 if y.encoding["scale"].get("reverse") else 1
    places = [*(up * y.places(y.drawn(objectives)))]
    axes.append((data.metric, places, [*map(data.format_value, objectives)]))
    table = pd.DataFrame({
        "trial": [row.number for row in rows],
        "state": [trial_state(data, row) for row in rows],
        "text": [", ".join(f"{key} {format_value(value)}" for key, value in row.point.items()) for row in rows],
    })  # fmt: skip
    width = max(MIN_AXIS_GAP, min(MAX_AXIS_GAP, PAGE_WIDTH // len(kept)))
    selected = {"and": [{"param": f"b{place}"} for place in range(len(axes))]}
    shared = {
        "color": COLOR,
        "tooltip": [{"field": "trial"}, {"field": "text", "title": "settings"}],
        "opacity": value_if(selected, 0.6, 0.05),
        "strokeWidth": value_if("datum.state == 'best' || datum.trial == chosen", 3, 1),
    }
    domain = {"domain": [INACTIVE_PLACE * 1.3, 1.02], "nice": False, "padding": 0}
    title = {"anchor": "start", "frame": "group", "fontSize": 11, "limit": width - 10, "fontWeight": "normal"}
    views: list[Spec] = []
    for place, (name, values, texts) in enumerate(axes):
        numbers, field = pd.Series(values, dtype=float), f"v{place}"
        low, high = numbers.min(), numbers.max()
        table[field] = ((numbers - low) / ((high - low) or 1)).fillna(INACTIVE_PLACE)
        # Labels at places where trials are, so that no scale needs to be inverted.
        labeled = {table[field][row]: text for row, text in enumerate(texts) if not math.isnan(values[row])}
        ticks = thinned(sorted(labeled), 5)
        labels = json.dumps({f"{tick:.5g}": labeled[tick] for tick in ticks})
        axis = {
            "values": ticks, "title": None, "grid": False, "labelLimit": 90, "domain": True, "domainColor": SOFT,
            "labelExpr": f"({labels})[format(datum.value, '.5~g')] || ''",
        }  # fmt: skip
        encoding = {"y": quantitative(field, axis=axis, scale=domain), **shared}
        is_last = place == len(kept)
        if not is_last:
            encoding |= {"x": {"value": 0}, "x2": {"value": width}, "y2": {"field": f"v{place + 1}"}}
        views.append({
            "width": 12 if is_last else width, "height": 250, "title": {"text": name, **title},
            "params": [{"name": f"b{place}", "select": {"type": "interval", "encodings": ["y"]}}],
            **layer("tick" if is_last else "rule", encoding),
        })  # fmt: skip
    # Later lines are drawn over earlier ones: the best trial is drawn last.
    spec = {
        "data": inline_data(table[::-1]), "params": PARAMS, "hconcat": views, "spacing": 0, "bounds": "flush",
        "autosize": "pad",
    }  # fmt: skip
    note = "" if len(kept) == len(keys) else f"not shown: {plural(len(keys) - len(kept), 'key')}"
    names = ", ".join(name for name, *_ in axes)
    text = f"One line per trial through the values of {names}; the table of all trials has the values."
    return Figure("Parallel coordinates of the trials", note, text, spec)
