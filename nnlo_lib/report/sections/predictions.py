"""Predictions of the models: confusion matrices, curves of their outputs, images of GANs."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.problems.set_metrics import FALSE_POSITIVE_RATES, reliability, roc_curve
from nnlo_lib.report.figure import (
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
        right, true, guessed = np.diag(self.counts), self.counts.sum(axis=1), self.counts.sum(axis=0)
        totals = (guessed, true, (true + guessed) / 2)
        shares = np.array([right / np.where(total > 0, total, 1) for total in totals])
        rows = [
            [name, *map(percent, map(float, shares[:, k])), str(int(true[k]))]
            for k, name in enumerate(self.classes)
        ]
        means = map(percent, map(float, shares.mean(axis=1)))
        return [*rows, ["mean over classes", *means, str(self.counts.sum())]]

    def pairs(self) -> list[tuple[str, str, int, float]]:
        """Return the most frequent errors: true class, predicted class, count, share of the true class."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        # A stable sort, because equal inputs must give equal pages.
        order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
        # A single misclassified sample may be chance: such pairs are shown only if no pair is more frequent.
        least = max(1, min(2, wrong.max()))
        places = (divmod(int(place), len(self.classes)) for place in order)
        pairs = [(true, guess, int(wrong[true, guess])) for true, guess in places]
        return [
            (self.classes[true], self.classes[guess], count, float(self.shares[true, guess]))
            for true, guess, count in pairs
            if count >= least
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
            total = found[job.run].counts if job.run in found else np.zeros_like(counts)
            if counts.shape != (len(classes), len(classes)) or total.shape != counts.shape:
                raise UserError(
                    f"{job.paths.evaluation}: the confusion matrix of shape {counts.shape} does not match its "
                    f"{len(classes)} classes or the matrices of other jobs of the run"
                )
            found[job.run] = ConfusionMatrix(job.run, classes, total + counts)
    return list(found.values())


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
    values = [
        each for each in found if each[1] == "value" and each[2]["targets"].shape == each[2]["outputs"].shape
    ]
    widest = max((saved["targets"].shape[1] for _, _, saved in values), default=0)
    figures = [_roc_figure(classes, names), _reliability_figure(classes, names)]
    figures += [
        _value_figure(values, names, output, widest) for output in range(min(widest, MAX_SHOWN_OUTPUTS))
    ]
    return [figure for figure in figures if figure is not None]


def _roc_figure(found: Sequence[Saved], names: Sequence[str]) -> Figure | None:
    rates = {run: roc_curve(saved["outputs"], saved["targets"]) for run, _, saved in found}
    rates = {run: curve for run, curve in rates.items() if np.isfinite(curve).all()}
    points = {run: (FALSE_POSITIVE_RATES, curve) for run, curve in rates.items()}
    rows = [
        [percent(float(rate)), *(percent(float(curve[place])) for curve in rates.values())]
        for place, rate in enumerate(FALSE_POSITIVE_RATES)
        if place % 5 == 0
    ]
    many = any(saved["outputs"].shape[1] > 2 for _, _, saved in found)
    note = "mean over classes, each against all others" if many else "of class 1"
    x, y = "false positive rate", "true positive rate"
    return _square_figure("ROC curve", note, points, (x, y), names, (x, *(names[run] for run in rates)), rows)


def _reliability_figure(found: Sequence[Saved], names: Sequence[str]) -> Figure | None:
    bins = {
        run: reliability(saved["outputs"], saved["targets"])
        for run, kind, saved in found
        if kind == "probability"
    }
    rows = [
        [names[run], percent(float(confidence)), percent(float(accuracy)), str(count)]
        for run, each in bins.items()
        for confidence, accuracy, count in zip(*each, strict=True)
    ]
    points = {run: (confidences, accuracies) for run, (confidences, accuracies, _) in bins.items()}
    titles, note = ("confidence", "accuracy"), "below the diagonal: too confident"
    return _square_figure("Calibration", note, points, titles, names, ("run", *titles, "samples"), rows)


def _value_figure(found: Sequence[Saved], names: Sequence[str], output: int, of: int) -> Figure | None:
    most = MAX_FIGURE_VALUES // max(1, len(found))
    points = {}
    for run, _, saved in found:
        if output < saved["targets"].shape[1]:
            places = thinned(range(len(saved["targets"])), most)
            true, predicted = (saved[name][places, output].astype(float) for name in ("targets", "outputs"))
            points[run] = true, predicted
    rows = [
        [names[run], number(x), number(y)]
        for run, pair in points.items()
        for x, y in thinned(zip(*pair, strict=True), MAX_VALUE_ROWS)
    ]
    title = "Predicted against true values" + (f", output {output + 1} of {of}" if of > 1 else "")
    note, titles = f"at most {most:,} evenly spaced samples", ("true", "predicted")
    return _square_figure(title, note, points, titles, names, ("run", *titles), rows, False)


def _square_figure(
    title: str, note: str, points: Mapping[int, tuple[Any, Any]], titles: tuple[str, str], names: Sequence[str],
    headings: Sequence[str], rows: Sequence[Sequence[str]], line: bool = True,
) -> Figure | None:  # fmt: skip
    """Return a figure of a quantity against another one of the same range, with a dashed line where both are equal.

    `points`: x and y of each run, by its number; `line`: a line for each run, else single points.
    """
    if not points:
        return None
    table = pd.concat(
        [pd.DataFrame({"run": run, "x": x, "y": y}) for run, (x, y) in points.items()], ignore_index=True
    )
    both, styles = table[["x", "y"]].to_numpy(), run_styles(names)
    low, high = (0, 1) if line else (float(both.min()), float(both.max()))
    scale = {"domain": [low, high], "nice": False, "zero": False}
    axes = {
        key: quantitative(key, scale=scale, axis={"title": heading, "format": ".3~g"})
        for key, heading in zip("xy", titles, strict=True)
    }
    tips = [
        {"field": key, "title": heading, "format": ".4~g"} for key, heading in zip("xy", titles, strict=True)
    ]
    encoding = {
        **{each: styles[each] for each in ("color", "strokeDash" if line else "shape")},
        "opacity": value_if("lit < 0 || datum.run == lit", 1 if line else 0.6, 0.06),
        "tooltip": [{"field": "name", "title": "run"}, *tips],
        **axes,
    }
    look: Spec = (
        {"strokeWidth": 2.2, "point": len(table) <= 20 * len(names)} if line else {"filled": True, "size": 22}
    )
    drawn = layer("line" if line else "point", encoding, VISIBLE, name_of_run(names), clip=True, **look)
    ends = {"x": quantitative("x"), "x2": {"field": "x2"}, "y": quantitative("y"), "y2": {"field": "y2"}}
    equal = layer("rule", ends, strokeDash=[3, 3], color=SOFT)
    equal["data"] = {"values": [{"x": low, "x2": high, "y": low, "y2": high}]}
    spec = panel(table, [equal, drawn | {"params": [ZOOM]}], 300, params=run_params())
    text = f"{title}: {titles[1]} against {titles[0]} of {plural(len(points), 'run')}; the table has values."
    return Figure(title, note, text, spec, headings, rows)


def evaluated_on(jobs: Iterable[FinishedRun]) -> str:
    """Return on which samples the models were evaluated: `on the test split`."""
    splits = {str(job.evaluation.get("split", "test")) for job in jobs}
    # Sorted, because equal inputs must give equal pages.
    return listing([f"on {SPLIT_NAMES.get(split, split)}" for split in sorted(splits)]) if splits else ""


class SampleImage(NamedTuple):
    """The sample sheet of the first job of a run that has one; `source` is the data URL of an HTML image."""

    run: str
    seed: int
    source: str


def sample_images(jobs: Sequence[FinishedRun]) -> list[SampleImage]:
    """Return an image for each run that has a sample sheet. Raises UserError if a sheet cannot be read."""
    found = []
    for run, group in group_by_run([job for job in jobs if job.paths.samples.exists()]).items():
        try:
            content = b64encode(group[0].paths.samples.read_bytes()).decode()
        except OSError as error:
            raise UserError(f"cannot read {group[0].paths.samples}: {error}") from error
        found.append(SampleImage(run, group[0].summary["seed"], f"data:image/png;base64,{content}"))
    return found
