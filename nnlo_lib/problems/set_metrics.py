"""Metrics of all samples together, by scikit-learn, and the curves that the report draws of them; does not import torch.

Arrays are those of predictions.npz: `outputs` (samples, k) are probabilities or scores of classes, or values; `targets` and
`predicted` are classes (samples,); without classes, targets are numbers (samples, k).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config.metrics import SET_PREFIX
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_function

Array = NDArray[Any]
CONFIDENCE_BINS = 15  # as in Guo et al. 2017
# Dense at 0, where the curve of a good model rises; twice 0, because curves begin at the corner.
FALSE_POSITIVE_RATES = np.append(0, np.linspace(0, 1, 51) ** 2)


def set_metric(name: str, outputs: Array, targets: Array, predicted: Array | None) -> float:
    """Return a metric of all samples by its name, or by `set:path.py:function`.

    NaN, if an output is not finite, or if the metric is not defined for these samples. Raises UserError if a user's function
    fails.
    """
    if name.startswith(SET_PREFIX):
        return _of_user(name.removeprefix(SET_PREFIX), outputs, targets)
    if not np.isfinite(outputs).all():
        return float("nan")
    from sklearn import metrics  # takes a second

    if name == "r2":
        # Of targets that differ; scikit-learn gives a constant target 0 or 1.
        varied = np.ptp(targets, axis=0) > 0
        return (
            float(metrics.r2_score(targets[:, varied], outputs[:, varied])) if varied.any() else float("nan")
        )
    if name == "f1":
        return float(metrics.f1_score(targets, predicted, average="macro", zero_division=0))
    if name == "calibration_error":
        confidence, accuracy, counts = reliability(outputs, targets)
        return float(counts @ abs(confidence - accuracy) / counts.sum())
    measure = {"roc_auc": metrics.roc_auc_score, "average_precision": metrics.average_precision_score}[name]
    return float(_mean_over_classes(measure, outputs, targets))


def _of_user(name: str, outputs: Array, targets: Array) -> float:
    try:
        value: Any = load_user_function(name)(outputs, targets)
        number = float(value) if np.ndim(value) == 0 else None
    except USER_CODE_ERRORS as error:
        raise UserError(f"{name}(outputs, targets) failed: {error_with_source_line(error)}") from error
    if number is None:
        raise UserError(f"{name} returned {type(value).__name__}; it must return one number for all samples")
    return number


def _mean_over_classes(measure: Callable[[Array, Array], Any], outputs: Array, targets: Array) -> Any:
    """Return the mean of a measure of (truth, scores): class 1 of two classes, or each class against all others.

    Classes that no sample or each sample has are left out; NaN without any class.
    """
    classes = range(outputs.shape[1]) if outputs.shape[1] > 2 else (1,)
    pairs = [(targets == k, outputs[:, k if len(classes) > 1 else -1]) for k in classes]
    found = [measure(truth, scores) for truth, scores in pairs if 0 < truth.sum() < len(truth)]
    return np.mean(found, axis=0) if found else float("nan")


def roc_curve(outputs: Array, targets: Array) -> Array:
    """Return the true positive rate at each of FALSE_POSITIVE_RATES, the mean over classes as for roc_auc; NaN if undefined."""
    from sklearn import metrics

    def rates(truth: Array, scores: Array) -> Array:
        false, true, _ = metrics.roc_curve(truth, scores, drop_intermediate=True)
        return np.append(0, np.interp(FALSE_POSITIVE_RATES[1:], false, true))

    return np.asarray(_mean_over_classes(rates, outputs, targets))


def reliability(outputs: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Return mean confidence, accuracy and number of samples of each bin of the confidence that has samples.

    The confidence is the highest probability of a sample; bins have equal width (Guo et al. 2017).
    """
    confidence, is_right = outputs.max(1).astype(float), outputs.argmax(1) == targets
    places = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    counts = np.bincount(places, minlength=CONFIDENCE_BINS)
    filled = counts > 0
    means = [
        np.bincount(places, each, CONFIDENCE_BINS)[filled] / counts[filled] for each in (confidence, is_right)
    ]
    return means[0], means[1], counts[filled]
