"""Predictions of the models: confusion matrices, curves of their outputs, images of GANs."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.problems.set_metrics import FALSE_POSITIVE_RATES, reliability, roc_curve, set_metric
from nnlo_lib.report.figure import (
    COLORS,
    FEW_TICKS,
    IS_MEAN,
    SOFT,
    VISIBLE,
    ZOOM,
    Figure,
    Spec,
    layer,
    name_of_run,
    panel,
    quantitative,
    run_params,
    run_styles,
    thinned,
    value_if,
)
from nnlo_lib.report.formatting import percent, plus_minus
from nnlo_lib.report.tables import group_by_run, spread_of
from nnlo_lib.state.finished_run import FinishedRun

MAX_PAIRS = 5  # pairs of classes
MAX_SHOWN_OUTPUTS = 4  # figures of predicted against true values, one for each output of a model
MAX_FIGURE_VALUES, MAX_VALUE_ROWS = 2000, 20  # points of such a figure, and rows of each run in its table
MIN_BIN = 10  # samples of a bin that the line of one training task passes
Arrays = dict[str, NDArray[Any]]  # of predictions.npz
Saved = dict[int, list[Arrays]]  # of the training tasks of each run, by its number


@dataclass(frozen=True)
class ConfusionMatrix:
    """Number of samples by true class (row) and predicted class (column), the sum over the training tasks of a run."""

    run: str
    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    tasks: int

    @property
    def shares(self) -> NDArray[np.float64]:
        """Counts divided by the number of samples of the true class."""
        # A class without samples would divide by zero.
        shares: NDArray[np.float64] = self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1)
        return shares

    @property
    def accuracy(self) -> float:
        """Share of the samples that are right."""
        return float(np.trace(self.counts) / np.maximum(self.counts.sum(), 1))

    def by_class(self) -> list[list[str]]:
        """Return class, precision, recall, F1 (0 if not defined) and samples per task of each class, and their means."""
        right, true, guessed = np.diag(self.counts), self.counts.sum(axis=1), self.counts.sum(axis=0)
        totals = (guessed, true, (true + guessed) / 2)
        shares = np.array([right / np.where(total > 0, total, 1) for total in totals])
        rows = [
            [name, *map(percent, map(float, shares[:, k])), f"{true[k] / self.tasks:,.0f}"]
            for k, name in enumerate(self.classes)
        ]
        means = map(percent, map(float, shares.mean(axis=1)))
        return [*rows, ["mean over classes", *means, f"{self.counts.sum() / self.tasks:,.0f}"]]

    def pairs(self) -> list[tuple[str, str, int, float]]:
        """Return the most frequent errors: true class, predicted class, count, share of the true class."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        # A stable sort, because equal inputs must give equal pages.
        order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
        # A single misclassified sample may be chance: such pairs are shown only if no pair is more frequent.
        least, shares = max(1, min(2, wrong.max())), self.shares
        return [
            (self.classes[true], self.classes[guess], int(wrong[true, guess]), float(shares[true, guess]))
            for true, guess in zip(*np.unravel_index(order, wrong.shape), strict=True)
            if wrong[true, guess] >= least
        ]


def confusion_matrices(jobs: Sequence[FinishedRun]) -> list[ConfusionMatrix]:
    """Return the summed matrix of each run that has one.

    Raises UserError if a matrix does not fit its number of classes, or sizes differ between jobs of a run.
    """
    found: dict[str, ConfusionMatrix] = {}
    for job in jobs:
        if confusion := job.evaluation.get("confusion"):
            counts = np.array(confusion)
            classes = tuple(map(str, job.evaluation.get("classes") or range(len(counts))))
            sum_ = found.get(job.run) or ConfusionMatrix(job.run, classes, np.zeros_like(counts), 0)
            if counts.shape != (len(classes), len(classes)) or sum_.counts.shape != counts.shape:
                raise UserError(
                    f"{job.paths.evaluation}: the confusion matrix of shape {counts.shape} does not match its "
                    f"{len(classes)} classes or the matrices of other jobs of the run"
                )
            found[job.run] = replace(sum_, counts=sum_.counts + counts, tasks=sum_.tasks + 1)
    return list(found.values())


def prediction_figures(jobs: Sequence[FinishedRun]) -> list[Figure]:
    """Return ROC and reliability curves of each run, and predicted against true values of its first training task.

    They are drawn from predictions.npz; training tasks whose outputs are not finite or not saved are left out.
    """
    groups = group_by_run(jobs)
    names, found = list(groups), defaultdict[str, Saved](lambda: defaultdict(list))
    positive = set()
    for run, job in ((run, job) for run, group in enumerate(groups.values()) for job in group):
        kind, saved = job.evaluation.get("predictions"), job.predictions
        if len(saved) and len(saved["targets"]) and np.isfinite(saved["outputs"]).all():
            if "predicted" in saved:
                positive.add(str((job.evaluation.get("classes") or "01")[-1]))
                found["class"][run].append(saved)
                found[f"class {kind}"][run].append(saved)
            elif kind == "value" and saved["targets"].shape == saved["outputs"].shape:
                found[kind][run].append(saved)
    firsts = {run: group[0] for run, group in found["value"].items()}
    widest = max((saved["targets"].shape[1] for saved in firsts.values()), default=0)
    figures = [
        _roc_figure(found["class"], names, positive),
        _reliability_figure(found["class probability"], names),
    ]
    figures += [
        _value_figure(firsts, names, output, widest) for output in range(min(widest, MAX_SHOWN_OUTPUTS))
    ]
    return [figure for figure in figures if figure is not None]


def _roc_figure(found: Saved, names: Sequence[str], positive: Collection[str]) -> Figure | None:
    means, areas, lines = {}, {}, list[pd.DataFrame]()
    for run, group in found.items():
        curves = [roc_curve(saved["outputs"], saved["targets"]) for saved in group]
        if known := [curve for curve in curves if np.isfinite(curve).all()]:
            means[run] = np.mean(known, axis=0)
            measured = [set_metric("roc_auc", saved["outputs"], saved["targets"], None) for saved in group]
            areas[run] = plus_minus(spread_of(measured))
            lines.extend(
                pd.DataFrame({"run": run, "job": job, "x": FALSE_POSITIVE_RATES, "y": curve})
                for job, curve in enumerate([means[run], *known], -1)
            )
    table = np.column_stack([FALSE_POSITIVE_RATES, *means.values()])[::5]
    rows = [["area", *areas.values()], *(list(map(percent, map(float, row))) for row in table)]
    many = any(saved["outputs"].shape[1] > 2 for group in found.values() for saved in group)
    of = "mean over classes, each against all others" if many else f"of class {', '.join(sorted(positive))}"
    titles = "false positive rate", "true positive rate"
    headings = titles[0], *(names[run] for run in means)
    named = [f"{name}: {areas[run]}" if run in areas else name for run, name in enumerate(names)]
    note = f"{of}; area in the {'table' if len(names) > COLORS else 'legend'}"
    return _square_figure("ROC curve", note, lines, titles, names, headings, rows, named)


def _reliability_figure(found: Saved, names: Sequence[str]) -> Figure | None:
    tables, rows = [], list[list[str]]()
    for run, group in found.items():
        together = {name: np.concatenate([saved[name] for saved in group]) for name in ("outputs", "targets")}
        for job, saved in enumerate([together, *group], -1):
            bins = reliability(saved["outputs"], saved["targets"])
            columns = dict(zip(("x", "y", "samples"), bins, strict=True))
            # A line through bins of a few samples would show their noise.
            table = pd.DataFrame({"run": run, "job": job, **columns})
            tables.append(table[(table["samples"] >= MIN_BIN) | (table["job"] < 0)])
            # The tasks share the samples of a test split: the table counts those of one task.
            rows.extend(
                [names[run], percent(float(x)), percent(float(y)), f"{count / len(group):,.4g}"]
                for x, y, count in zip(*bins, strict=True)
                if job < 0
            )
    titles, note = ("confidence", "accuracy"), "below the diagonal: too confident; larger marks: more samples"
    return _square_figure("Calibration", note, tables, titles, names, ("run", *titles, "samples"), rows)


def _value_figure(found: Mapping[int, Arrays], names: Sequence[str], output: int, of: int) -> Figure | None:
    most, tables, rows = MAX_FIGURE_VALUES // max(1, len(found)), [], list[list[str]]()
    for run, saved in found.items():
        if output < saved["targets"].shape[1]:
            places = thinned(range(len(saved["targets"])), most)
            x, y = (saved[name][places, output].astype(float) for name in ("targets", "outputs"))
            tables.append(pd.DataFrame({"run": run, "job": -1, "x": x, "y": y}))
            some = thinned(zip(x, y, strict=True), MAX_VALUE_ROWS)
            rows.extend([names[run], number(true), number(predicted)] for true, predicted in some)
    title = "Predicted against true values" + (f", output {output + 1} of {of}" if of > 1 else "")
    note, titles = f"at most {most:,} evenly spaced samples", ("true", "predicted")
    return _square_figure(title, note, tables, titles, names, ("run", *titles), rows, is_share=False)


def _square_figure(
    title: str, note: str, tables: Sequence[pd.DataFrame], titles: tuple[str, str], names: Sequence[str],
    headings: Sequence[str], rows: Sequence[Sequence[str]], named: Sequence[str] = (), is_share: bool = True,
) -> Figure | None:  # fmt: skip
    """Return a figure of a quantity against another one of the same range, with a dashed line where both are equal.

    `tables`: columns `run`, `job` (-1: of all training tasks), `x` and `y`; with `samples`, marks of
    this size stand for all tasks instead of a line. `named`: texts of the legend. Other quantities than shares are points.
    """
    if not tables:
        return None
    table, styles = pd.concat(tables, ignore_index=True), run_styles(named or names)
    if len(names) > COLORS:  # the table has what the legend does not
        styles = {channel: style | {"legend": None} for channel, style in styles.items()}
    both, is_binned = table[["x", "y"]].to_numpy(), "samples" in table
    low, high = (0, 1) if is_share else (float(both.min()), float(both.max()))
    scale = {"domain": [low, high], "nice": False, "zero": False}
    axis = {"format": "~%" if is_share else ".3~g", "tickCount": FEW_TICKS}
    axes = {
        key: quantitative(key, scale=scale, axis={"title": heading, **axis})
        for key, heading in zip("xy", titles, strict=True)
    }
    shown = [*zip("xy", titles, strict=True), *([("samples", "samples")] if is_binned else [])]
    tips = [{"field": key, "title": heading, "format": ".4~g"} for key, heading in shown]
    is_lit = "lit < 0 || datum.run == lit"
    encoding = {
        "color": styles["color"],
        "opacity": value_if(is_lit, 1 if is_share else 0.6, 0.06),
        "tooltip": [{"field": "name", "title": "run"}, *tips],
        **axes,
    }
    layers: list[Spec] = []
    if table["job"].max() > 0 and len(names) <= COLORS:
        thin = {**encoding, "detail": {"field": "job"}, "opacity": value_if(is_lit, 0.35, 0.06)}
        layers = [layer("line", thin, {"filter": "datum.job >= 0"}, clip=True, strokeWidth=1)]
    if is_binned:
        size = quantitative("samples", scale={"rangeMin": 12, "rangeMax": 320}, legend=None)
        layers.append(layer("point", {**encoding, "size": size}, IS_MEAN, filled=True, opacity=0.7))
    elif is_share:
        dashed = encoding | {"strokeDash": styles["strokeDash"]}
        layers.append(layer("line", dashed, IS_MEAN, clip=True, strokeWidth=2.2))
    else:
        layers.append(layer("point", encoding | {"shape": styles["shape"]}, clip=True, filled=True, size=22))
    ends = {"x": quantitative("x"), "x2": {"field": "x2"}, "y": quantitative("y"), "y2": {"field": "y2"}}
    equal = layer("rule", ends, strokeDash=[3, 3], color=SOFT)
    equal["data"] = {"values": [{"x": low, "x2": high, "y": low, "y2": high}]}
    layers[-1] |= {"params": [ZOOM]}
    shared = {"params": run_params(), "transform": [VISIBLE, name_of_run(names)]}
    spec = panel(table, [equal, *layers], 300, **shared)
    text = f"{title}: {titles[1]} against {titles[0]} of {plural(table['run'].nunique(), 'run')}; the table has values."
    return Figure(title, note, text, spec, headings, rows)


def sample_images(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return the data URL of the sample sheet of the first job of each run that has one. Raises UserError if it cannot be read."""
    found = {}
    for run, group in group_by_run([job for job in jobs if job.paths.samples.exists()]).items():
        try:
            content = b64encode(group[0].paths.samples.read_bytes()).decode()
        except OSError as error:
            raise UserError(f"cannot read {group[0].paths.samples}: {error}") from error
        found[run] = f"data:image/png;base64,{content}"
    return found
