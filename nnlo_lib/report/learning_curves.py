"""Learning curves as figures: one per metric, with a curve per run."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from nnlo_lib.core.text_format import MISSING, plural
from nnlo_lib.report.figure import SOFT, Figure, curve_spec, inline_data, layer, thinned, value_axis
from nnlo_lib.report.quantities import TimeBase, measured_values, quantity_name
from nnlo_lib.report.tables import group_by_run
from nnlo_lib.state.finished_run import FinishedRun

MAX_CURVE_POINTS = 120  # points of one line; more cannot be distinguished
MAX_FIGURE_POINTS = 4000  # points of one figure, which bound the size of the page
MAX_JOB_LINES = 6  # jobs of a run; for more, a band is clearer than lines
MAX_TABLE_ROWS = 25  # rows of the table of values


def learning_curve_figures(
    jobs: Sequence[FinishedRun], clock: TimeBase, ranked_by: str | None = None
) -> list[Figure]:
    """Return figures over epochs, and of the metric that ranks the runs over seconds; each axis has one quantity.

    The test metric `ranked_by` is drawn from validation data if available, else from training data, else replaced by the
    last figure's metric.
    """
    names = _metrics(jobs)
    chosen = [(name, "epoch") for name in [*names, "consensus_error"]]
    ranking = [f"{split}_{ranked_by}" for split in ("val", "train")]
    # The last metric is the main one; see `_metrics`.
    chosen += [(name, "seconds") for name in ([*filter(names.__contains__, ranking)] or names[-1:])[:1]]
    return [figure for name, against in chosen for figure in _figures(jobs, name, against, clock)]


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


def _figures(jobs: Sequence[FinishedRun], metric: str, against: str, clock: TimeBase) -> list[Figure]:
    """Return a figure for each quantity that the runs call `metric`, such as different loss functions.

    `metric` is a column of the history; `against`: column of the x axis, `epoch` or `seconds`.
    """
    groups = group_by_run(jobs)
    # Epoch, seconds and value of each job that has finite values of the metric.
    runs = {
        run: [line for job in group if len(line := measured_values(job, metric))]
        for run, group in groups.items()
    }
    quantities = {run: quantity_name(groups[run][0], metric) for run in groups if runs[run]}
    figures = []
    for quantity in dict.fromkeys(quantities.values()):
        drawn = [run for run in runs if quantities.get(run) == quantity]
        # A run keeps its index, and so its color, in figures that lack other runs.
        lines = {run: runs[run] if run in drawn else [] for run in runs}
        constants = {
            job.summary.get("data", {}).get("constant_loss")
            for run in drawn
            for job in groups[run]
            if metric == "val_loss"
        }
        # The loss of the best constant predictor, unless it differs between jobs.
        constant = constants.pop() if len(constants) == 1 else None
        split, name = metric.split("_", 1)
        title = f"{'Training' if split == 'train' else 'Validation'} {name.replace('_', ' ')}"
        title = "Mean distance of the nodes from their mean" if split == "consensus" else title
        title += f" ({quantity})" if quantity and split != "consensus" else ""
        figures.append(_figure(lines, title, metric, against, clock, constant))
    return figures


def _figure(
    runs: Mapping[str, Sequence[pd.DataFrame]],
    title: str,
    metric: str,
    against: str,
    clock: TimeBase,
    constant: float | None,
) -> Figure:
    names = list(runs)
    is_band = any(len(lines) > MAX_JOB_LINES for lines in runs.values())
    means = {names.index(run): mean_curve(lines) for run, lines in runs.items() if lines}
    # A band stands for the lines of the jobs.
    singles = {
        (names.index(run), job): line
        for run, lines in runs.items()
        if len(lines) > 1 and not is_band
        for job, line in enumerate(lines)
    }
    most = min(MAX_CURVE_POINTS, max(10, MAX_FIGURE_POINTS // (len(means) + len(singles))))
    drawn = [
        line.iloc[thinned(range(len(line)), most)].assign(run=run, job=job, std=line.get("std", np.nan))
        for (run, job), line in [*(((run, -1), mean) for run, mean in means.items()), *singles.items()]
    ]
    points = pd.concat(drawn, ignore_index=True)[["run", "job", "epoch", "seconds", "value", "std"]]
    values = [line["value"] for lines in runs.values() for line in lines]
    y = value_axis(
        metric, pd.concat([*values, pd.Series([] if constant is None else [constant], dtype=float)])
    )
    x_title, shown = _x_title(against, clock), [names[run] for run in means]
    table = pd.DataFrame({run: mean.set_index("epoch")["value"] for run, mean in means.items()}).sort_index()
    rows = [
        [f"{epoch:.5g}", *(MISSING if pd.isna(each) else y.format_value(each) for each in table.loc[epoch])]
        for epoch in thinned(table.index, MAX_TABLE_ROWS)
    ]
    text = f"{title} against {x_title}: {plural(len(shown), 'run')}; the table of values has the means over their training tasks."
    spec = curve_spec(points, against, x_title, y, names, is_band, _x_title("seconds", clock))
    if constant is not None:
        text += f" The best constant predictor has {y.format_value(constant)}."
        level = {"data": inline_data(pd.DataFrame({"y": [y.drawn(constant)]}))}
        place = {"text": "best constant predictor", "align": "left", "baseline": "bottom", "dy": -3}
        spec["layer"] += [
            layer("rule", {"x": None, "color": None}, strokeDash=[6, 4], color=SOFT) | level,
            layer("text", {"x": {"value": 4}, "color": None}, color=SOFT, **place) | level,
        ]
    return Figure(title, y.note, text, spec, ("epoch", *shown), rows)


def _x_title(against: str, clock: TimeBase) -> str:
    if against == "epoch":
        return "epoch"
    return "time (s): virtual or measured" if clock.mixed else f"{clock.word or 'training'} time (s)"


def mean_curve(jobs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return epoch, mean seconds, mean value and its standard deviation at each epoch that all jobs have."""
    groups = pd.concat(list(jobs)).groupby("epoch")
    table = groups[["seconds", "value"]].mean().assign(std=groups["value"].std())
    # The mean over the remaining jobs would jump where one job ends.
    return table[groups.size() == len(jobs)].reset_index()
