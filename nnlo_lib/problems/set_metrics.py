"""Metrics of all samples together, by scikit-learn, curves for the report, and whether classes are guesses; does not import torch.

Arrays are those of predictions.npz: `outputs` (samples, k) are probabilities or scores of classes, or values; `targets` and
`predicted` are classes (samples,); without classes, targets are numbers (samples, k). `weights` (samples,) come from a table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config.metrics import SET_PREFIX
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_function

Array = NDArray[Any]
STANDARD_ERRORS = 2.0  # above a guess, within which a result is no better
# If this share of the samples gets one class, the balanced accuracy must exceed chance by the factor: a tenth of the rarer
# of two classes is found.
ONE_CLASS, ONE_CLASS_MARGIN = 0.99, 1.05
ORDERED = 0.75  # roc_auc of outputs that are worth a threshold; a first epoch can have 0.7
CONFIDENCE_BINS = 15  # as in Guo et al. 2017
# Dense at 0, where the curve of a good model rises; twice 0, because curves begin at the corner.
FALSE_POSITIVE_RATES = np.append(0, np.linspace(0, 1, 51) ** 2)


def set_metric(
    name: str, outputs: Array, targets: Array, predicted: Array | None, weights: Array | None = None
) -> float:
    """Return a metric of all samples by its name, or by `set:path.py:function`.

    NaN, if an output is not finite, or if the metric is not defined for these samples. A user's function gets no weights. Raises
    UserError if it fails.
    """
    if name.startswith(SET_PREFIX):
        reference = name.removeprefix(SET_PREFIX)
        try:
            value: Any = load_user_function(reference)(outputs, targets)
            number = float(value) if np.ndim(value) == 0 else None
        except USER_CODE_ERRORS as error:
            raise UserError(
                f"{reference}(outputs, targets) failed: {error_with_source_line(error)}"
            ) from error
        if number is None:
            kind = type(value).__name__
            raise UserError(f"{reference} returned {kind}; it must return one number for all samples")
        return number
    if not np.isfinite(outputs).all():
        return float("nan")
    from sklearn import metrics  # takes a second

    if name == "r2":
        # Of targets that differ; scikit-learn gives a constant target 0 or 1.
        varied = np.ptp(targets, axis=0) > 0
        pair = targets[:, varied], outputs[:, varied]
        return float(metrics.r2_score(*pair, sample_weight=weights)) if varied.any() else float("nan")
    if name == "f1":
        scores = metrics.f1_score(targets, predicted, average="macro", sample_weight=weights, zero_division=0)
        return float(scores)
    if name == "calibration_error":
        confidence, accuracy, counts = reliability(outputs, targets, weights)
        return float(counts @ abs(confidence - accuracy) / counts.sum())
    measure = {"roc_auc": metrics.roc_auc_score, "average_precision": metrics.average_precision_score}[name]
    return float(_mean_over_classes(partial(measure, sample_weight=weights), outputs, targets))


def _mean_over_classes(measure: Callable[[Array, Array], Any], outputs: Array, targets: Array) -> Any:
    """Return the mean of a measure of (truth, scores): class 1 of two classes, or each class against all others.

    Classes that no sample or each sample has are left out; NaN without any class.
    """
    classes = range(outputs.shape[1]) if outputs.shape[1] > 2 else (1,)
    pairs = [(targets == k, outputs[:, k if len(classes) > 1 else -1]) for k in classes]
    found = [measure(truth, scores) for truth, scores in pairs if 0 < truth.sum() < len(truth)]
    return np.mean(found, axis=0) if found else float("nan")


def roc_curve(outputs: Array, targets: Array, weights: Array | None = None) -> Array:
    """Return the true positive rate at each of FALSE_POSITIVE_RATES, the mean over classes as for roc_auc; NaN if undefined."""
    from sklearn import metrics

    def rates(truth: Array, scores: Array) -> Array:
        false, true, _ = metrics.roc_curve(truth, scores, sample_weight=weights, drop_intermediate=True)
        return np.append(0, np.interp(FALSE_POSITIVE_RATES[1:], false, true))

    return np.asarray(_mean_over_classes(rates, outputs, targets))


def reliability(outputs: Array, targets: Array, weights: Array | None = None) -> tuple[Array, Array, Array]:
    """Return mean confidence, accuracy and number, or weight, of samples of each bin of the confidence that has samples.

    The confidence is the highest probability of a sample; bins have equal width (Guo et al. 2017).
    """
    confidence, is_right = outputs.max(1).astype(float), outputs.argmax(1) == targets
    places = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    counts = np.bincount(places, weights, CONFIDENCE_BINS)
    filled = counts > 0
    factors = 1 if weights is None else weights
    sums = [np.bincount(places, each * factors, CONFIDENCE_BINS) for each in (confidence, is_right)]
    means = [each[filled] / counts[filled] for each in sums]
    return means[0], means[1], counts[filled]


@dataclass(frozen=True)
class Guessing:
    """Predicted classes that do not depend on the true class."""

    balanced_accuracy: float  # mean over the classes of the fraction of their samples that is right
    chance: float  # balanced accuracy of a model that always names one class
    roc_auc: float | None  # of the outputs, if these order the samples by class nevertheless; else None
    meaning: ClassVar = "classes no better than always naming one"

    @property
    def text(self) -> str:
        """The numbers of the judgment."""
        text = f"balanced accuracy {self.balanced_accuracy:.1%} against {self.chance:.1%}"
        return text if self.roc_auc is None else f"{text}, but roc_auc {self.roc_auc:.3f}"

    @property
    def remedy(self) -> str:
        """What to try."""
        if self.roc_auc is not None:
            return (
                "the outputs order the samples by class, but the most probable class is (almost) always the same: train "
                "with `problem.class_weights: balanced`, judge the model by roc_auc or average_precision, or compare "
                "probability_<class> of `nnlo predict` with a threshold"
            )
        return "try a smaller learning rate, more epochs or other settings of the algorithm"


@dataclass(frozen=True)
class GuessedNumbers:
    """Predicted numbers that are no better than the mean of the targets; `r2` is the mean over the targets."""

    r2: float
    meaning: ClassVar = "numbers no better than always naming their mean"
    remedy: ClassVar = "try another learning rate, more epochs, or targets in units of about their deviation"

    @property
    def text(self) -> str:
        """The number of the judgment."""
        return f"r2 {self.r2:.3g}"


def guessing(
    evaluation: Mapping[str, Any], read_predictions: Callable[[], Mapping[str, Any]]
) -> Guessing | GuessedNumbers | None:
    """Return the judgment of a model whose classes or numbers are guesses; None for other models.

    Args:
        evaluation: content of evaluation.json.
        read_predictions: returns the arrays of predictions.npz, empty if none were written; called if the classes are guesses.
    """
    if evaluation.get("predictions") == "value":
        found = read_predictions()
        outputs, targets = found.get("outputs", np.zeros(0)), found.get("targets", np.zeros(0))
        # A loss of the user may have several outputs for a target.
        is_comparable = outputs.size > 0 and outputs.shape == targets.shape
        r2 = set_metric("r2", outputs, targets, None) if is_comparable else math.nan
        return GuessedNumbers(r2) if r2 <= 0 else None
    confusion: Sequence[Sequence[int]] = evaluation.get("confusion") or []
    truths = [row for row in confusion if sum(row)]
    if len(truths) < 2:
        return None
    samples = sum(map(sum, truths))
    recalls = [row[k] / sum(row) for k, row in enumerate(confusion) if sum(row)]
    named = [sum(row[k] for row in confusion) / samples for k, row in enumerate(confusion) if sum(row)]
    # Of guesses with the same shares of the classes.
    variance = sum(share * (1 - share) / sum(row) for share, row in zip(named, truths, strict=True))
    balanced, chance = sum(recalls) / len(recalls), 1 / len(recalls)
    # A few right answers of a rare class are significant, but the model still names (almost) always the same class.
    one_class = max(named) >= ONE_CLASS and balanced <= chance * ONE_CLASS_MARGIN
    if not one_class and balanced > chance + STANDARD_ERRORS * math.sqrt(variance) / len(recalls) + 1e-9:
        return None
    auc = evaluation.get("roc_auc")
    if auc is None and "predicted" in (predictions := read_predictions()):
        auc = set_metric("roc_auc", predictions["outputs"], predictions["targets"], None)
    errors = [math.sqrt((samples + 1) / 12 / sum(row) / (samples - sum(row))) for row in truths]
    orders = auc is not None and auc > max(ORDERED, 0.5 + STANDARD_ERRORS * sum(errors) / len(errors))
    return Guessing(balanced, chance, auc if orders else None)
