"""Predictions of the models: confusion matrices, curves of their outputs, images of GANs."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.problems.set_metrics import FALSE_POSITIVE_RATES, reliability, roc_curve
from nnlo_lib.report.figure import VISIBLE, ZOOM, Figure, Spec, inline_data, run_styles, thinned
from nnlo_lib.report.formatting import listing, percent
from nnlo_lib.report.tables import group_by_run
from nnlo_lib.state.finished_run import SPLIT_NAMES, FinishedRun

MAX_SHOWN_CLASSES = 20  # classes; a larger matrix is not readable on a page
MAX_PAIRS = 5  # pairs of classes
MAX_SHOWN_OUTPUTS = 4  # figures of predicted against true values, one for each output of a model
MAX_FIGURE_VALUES, MAX_VALUE_ROWS = 2000, 20  # points of such a figure, and rows of each run in its table
# Number of a run, what its outputs are, arrays of predictions.npz.
Saved = tuple[int, str, dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class ConfusionMatrix:
    """Number of samples by true class (row) and predicted class (column)."""

    run: str
    classes: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def readable(self) -> bool:
        """Whether the matrix is small enough to be shown."""
        return len(self.classes) <= MAX_SHOWN_CLASSES

    @property
    def shares(self) -> NDArray[np.float64]:
        """Counts divided by the number of samples of the true class."""
        # A class without samples would divide by zero.
        totals = self.counts.sum(axis=1, keepdims=True)
        shares: NDArray[np.float64] = self.counts / np.maximum(totals, 1)
        return shares

    def by_class(self) -> list[list[str]]:
        """Return class, precision, recall, F1 (0 if not defined) and number of samples of each class, and their means."""
        from sklearn.metrics import precision_recall_fscore_support

        numbers = range(len(self.classes))
        true, predicted = np.indices(self.counts.shape).reshape(2, -1)
        *shares, support = precision_recall_fscore_support(
            true, predicted, labels=list(numbers), sample_weight=self.counts.ravel(), zero_division=0
        )
        rows = [
            [name, *(percent(float(each[k])) for each in shares), str(int(support[k]))]
            for k, name in enumerate(self.classes)
        ]
        means = [percent(float(each.mean())) for each in shares]
        return [*rows, ["mean over classes", *means, str(self.counts.sum())]]

    def pairs(self) -> list[tuple[str, str, int, float]]:
        """Return the most frequent errors: true class, predicted class, count, share of the true class."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        # A stable sort, because equal inputs must give equal pages.
        order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
        places = [divmod(int(place), len(self.classes)) for place in order]
        # A single misclassified sample may be chance: such pairs are shown only if no pair is more frequent.
        min_count = min(2, wrong.max())
        return [
            (
                self.classes[true],
                self.classes[guess],
                int(wrong[true, guess]),
                float(self.shares[true, guess]),
            )
            for true, guess in places
            if wrong[true, guess] >= max(1, min_count)
        ]


def confusion_matrices(jobs: Sequence[FinishedRun]) -> list[ConfusionMatrix]:
    """Return the summed matrix of each run that has one.

    Raises UserError if a matrix does not fit its number of classes, or sizes differ between jobs of a run.
    """
    known = [job for job in jobs if job.evaluation.get("confusion")]
    return [_sum(run, group) for run, group in group_by_run(known).items()]


def _sum(run: str, jobs: Iterable[FinishedRun]) -> ConfusionMatrix:
    total: NDArray[np.int64] | None = None
    for job in jobs:
        counts = np.array(job.evaluation["confusion"])
        classes = tuple(map(str, job.evaluation.get("classes") or range(len(counts))))
        if counts.shape != (len(classes), len(classes)) or (
            total is not None and total.shape != counts.shape
        ):
            raise UserError(
                f"{job.paths.evaluation}: the confusion matrix of shape {counts.shape} does not match its "
                f"{len(classes)} classes or the matrices of other jobs of the run"
            )
        total = counts if total is None else total + counts
    assert total is not None
    return ConfusionMatrix(run, classes, total)


def prediction_figures(jobs: Sequence[FinishedRun]) -> list[Figure]:
    """Return ROC and reliability curves, and predicted against true values, of the first training task of each run.

    They are drawn from predictions.npz; runs whose outputs are not finite or not saved are left out.
    """
    groups = group_by_run(jobs)
    names = list(groups)
    found = [
        (run, kind, saved)
        for run, group in enumerate(groups.values())
        if (kind := group[0].evaluation.get("predictions")) in ("probability", "score", "value")
        and len(saved := group[0].predictions)
        and len(saved["targets"])
        and np.isfinite(saved["outputs"]).all()
    ]
    classes = [each for each in found if "predicted" in each[2]]
    figures = [_roc_figure(classes, names), _reliability_figure(classes, names)]
    values = [
        each for each in found if each[1] == "value" and each[2]["targets"].shape == each[2]["outputs"].shape
    ]
    widest = max((saved["targets"].shape[1] for _, _, saved in values), default=0)
    figures += [
        _value_figure(values, names, column, widest) for column in range(min(widest, MAX_SHOWN_OUTPUTS))
    ]
    return [figure for figure in figures if figure is not None]


def _roc_figure(found: Sequence[Saved], names: Sequence[str]) -> Figure | None:
    rates = {run: roc_curve(saved["outputs"], saved["targets"]) for run, _, saved in found}
    rates = {run: curve for run, curve in rates.items() if np.isfinite(curve).all()}
    points = [
        pd.DataFrame({"run": run, "x": FALSE_POSITIVE_RATES, "y": curve}) for run, curve in rates.items()
    ]
    x, y = "false positive rate", "true positive rate"
    rows = [
        [percent(float(rate)), *(percent(float(curve[place])) for curve in rates.values())]
        for place, rate in enumerate(FALSE_POSITIVE_RATES)
        if place % 5 == 0
    ]
    many = any(saved["outputs"].shape[1] > 2 for _, _, saved in found)
    note = "mean over classes, each against all others" if many else "of class 1"
    return _square_figure("ROC curve", note, points, (x, y), names, (x, *(names[run] for run in rates)), rows)


def _reliability_figure(found: Sequence[Saved], names: Sequence[str]) -> Figure | None:
    bins = {
        run: reliability(saved["outputs"], saved["targets"])
        for run, kind, saved in found
        if kind == "probability"
    }
    points = [pd.DataFrame({"run": run, "x": each[0], "y": each[1]}) for run, each in bins.items()]
    rows = [
        [names[run], percent(float(confidence)), percent(float(accuracy)), str(count)]
        for run, each in bins.items()
        for confidence, accuracy, count in zip(*each, strict=True)
    ]
    x, y = "confidence", "accuracy"
    return _square_figure(
        "Calibration",
        "below the diagonal: too confident",
        points,
        (x, y),
        names,
        ("run", x, y, "samples"),
        rows,
    )


def _value_figure(found: Sequence[Saved], names: Sequence[str], column: int, of: int) -> Figure | None:
    most = MAX_FIGURE_VALUES // max(1, len(found))
    points = []
    for run, _, saved in found:
        if column < saved["targets"].shape[1]:
            places = thinned(range(len(saved["targets"])), most)
            x, y = (saved[name][places, column].astype(float) for name in ("targets", "outputs"))
            points.append(pd.DataFrame({"run": run, "x": x, "y": y}))
    rows = [
        [names[int(run)], number(x), number(y)]
        for each in points
        for run, x, y in thinned(each.itertuples(index=False), MAX_VALUE_ROWS)
    ]
    title = "Predicted against true values" + (f", output {column + 1} of {of}" if of > 1 else "")
    note = f"at most {most:,} evenly spaced samples"
    return _square_figure(
        title, note, points, ("true", "predicted"), names, ("run", "true", "predicted"), rows, False
    )


def _square_figure(
    title: str, note: str, points: Sequence[pd.DataFrame], titles: tuple[str, str], names: Sequence[str],
    headings: Sequence[str], rows: Sequence[Sequence[str]], line: bool = True,
) -> Figure | None:  # fmt: skip
    if not points:
        return None
    spec = _square_spec(pd.concat(points, ignore_index=True), *titles, names, line)
    text = f"{title}: {titles[1]} against {titles[0]} of {plural(len(points), 'run')}; the table has values."
    return Figure(title, note, text, spec, headings, rows)


def _square_spec(
    points: pd.DataFrame, x_title: str, y_title: str, names: Sequence[str], line: bool = True
) -> Spec:
    """Return a specification of a quantity against another one of the same range, with a dashed line where both are equal.

    Args:
        points: columns `run` (number), `x`, `y`.
        line: a line for each run; else single points.
    """
    low, high = (
        (0, 1) if line else (float(points[["x", "y"]].min().min()), float(points[["x", "y"]].max().max()))
    )
    styles, scale = run_styles(names), {"domain": [low, high], "nice": False, "zero": False}
    lit = {"condition": {"test": "lit < 0 || datum.run == lit", "value": 1 if line else 0.6}, "value": 0.06}
    tips = [{"field": "name", "title": "run"}]
    tips += [
        {"field": key, "title": title, "format": ".4~g"} for key, title in (("x", x_title), ("y", y_title))
    ]
    mark: Spec = (
        {"type": "line", "strokeWidth": 2.2, "point": len(points) <= 20 * len(names)}
        if line
        else {"type": "point", "filled": True, "size": 22}
    )
    channels = ("color", "strokeDash") if line else ("color", "shape")
    ends = {"x": low, "x2": high, "y": low, "y2": high}
    equal = {"data": {"values": [ends]}, "mark": {"type": "rule", "strokeDash": [3, 3], "color": "var(--soft)"},
             "encoding": {key: {"field": key, **({} if "2" in key else {"type": "quantitative"})} for key in ends}}  # fmt: skip
    drawn = {"transform": [VISIBLE, {"calculate": f"({json.dumps(list(names))})[datum.run]", "as": "name"}],
             "mark": {**mark, "clip": True}, "params": [ZOOM],
             "encoding": {**{each: styles[each] for each in channels}, "opacity": lit, "tooltip": tips,
                          "x": {"field": "x", "type": "quantitative", "scale": scale, "axis": {"title": x_title, "format": ".3~g"}},
                          "y": {"field": "y", "type": "quantitative", "scale": scale, "axis": {"title": y_title, "format": ".3~g"}}}}  # fmt: skip
    return {
        "data": inline_data(points), "params": [{"name": "hidden", "value": []}, {"name": "lit", "value": -1}], "layer": [equal, drawn], "width": "container", "height": 300,
    }  # fmt: skip


def evaluated_on(jobs: Iterable[FinishedRun]) -> str:
    """Return on which samples the models were evaluated: `on the test split`."""
    splits = {str(job.evaluation.get("split", "test")) for job in jobs}
    # Sorted, because equal inputs must give equal pages.
    return listing([f"on {SPLIT_NAMES.get(split, split)}" for split in sorted(splits)]) if splits else ""


@dataclass(frozen=True)
class SampleImage:
    """The sample sheet of the first job of a run that has one; `source` is the data URL of an HTML image."""

    run: str
    seed: int
    source: str


def sample_images(jobs: Sequence[FinishedRun]) -> list[SampleImage]:
    """Return an image for each run that has a sample sheet. Raises UserError if a sheet cannot be read."""
    drawn = [job for job in jobs if job.paths.samples.exists()]
    return [_picture(run, group[0]) for run, group in group_by_run(drawn).items()]


def _picture(run: str, job: FinishedRun) -> SampleImage:
    try:
        content = job.paths.samples.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {job.paths.samples}: {error}") from error
    return SampleImage(run, job.summary["seed"], f"data:image/png;base64,{b64encode(content).decode()}")
