"""Losses and metrics by name, for outputs as a model returns them and labels as the store holds them.

Functions of numbers compare outputs and targets, both (samples, k), by the mean over k of each sample; the
multi-class hinge is a single value of all k outputs. Functions of classes have (samples, classes) outputs,
(samples,) labels and (samples,) values.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.config.metrics import TOP_K_ACCURACY_PATTERN
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_function

PerSample = Callable[[Tensor, Tensor], Tensor]  # outputs (samples, ...), labels (samples, ...) -> (samples,)
PROBABILITY_EPSILON = 1e-7  # bounds probabilities away from 0 and 1, as in Keras
NO_CLASS = -1  # prediction from outputs of which one is NaN
# Losses that pull the outputs to the labels 0 and 1 themselves, instead of below and above 0.
LOSSES_OF_DISTANCE = ("mse", "mae", "huber")


def loss_by_name(problem: ClassificationConfig | RegressionConfig, name: str) -> PerSample:
    """Return a problem's loss. Raises UserError if a user's function cannot be loaded."""
    smoothing = problem.label_smoothing if isinstance(problem, ClassificationConfig) else 0.0
    return metric_by_name(problem, name, smoothing=smoothing)


def metric_by_name(
    problem: ClassificationConfig | RegressionConfig, name: str, loss: str = "", smoothing: float = 0.0
) -> PerSample:
    """Return a loss or a metric by its name, or `path.py:function`. Raises UserError if this cannot be loaded.

    `loss` is the loss of the output that a metric measures; metrics have no label `smoothing`.
    """
    if ".py:" in name:
        return partial(_checked, name, user_loss(name))
    probabilities, threshold = problem.outputs == "probabilities", decision_threshold(problem, loss)
    if isinstance(problem, RegressionConfig):
        return partial(
            _compared, elementwise(probabilities, threshold, problem.huber_delta)[name], labels_like_outputs
        )
    if found := TOP_K_ACCURACY_PATTERN.fullmatch(name):
        return partial(top_k_accuracy, k=int(found[1]), threshold=threshold)
    entropy = cross_entropy_of_probabilities if probabilities else cross_entropy
    of_classes: dict[str, PerSample] = {
        **{
            each: partial(accuracy, threshold=threshold, name=each)
            for each in ("accuracy", "balanced_accuracy")
        },
        "cross_entropy": partial(entropy, smoothing=smoothing),
        "nll": nll,
    }
    if name in of_classes:
        return of_classes[name]
    return partial(_compared, elementwise(probabilities, threshold)[name], targets_like_outputs)


def decision_threshold(problem: ClassificationConfig | RegressionConfig, loss: str) -> float:
    """Return the number above which an output is positive, or a single output is class 1."""
    return 0.5 if problem.outputs == "probabilities" or loss in LOSSES_OF_DISTANCE else 0.0


def elementwise(probabilities: bool, threshold: float, delta: float = 1.0) -> dict[str, partial[Tensor]]:
    """Return the functions of numbers by name."""
    return {
        "mse": partial(mse),
        "mae": partial(mae),
        "huber": partial(huber, delta=delta),
        "hinge": partial(hinge),
        "binary_cross_entropy": partial(binary_cross_entropy, probabilities=probabilities),
        "binary_accuracy": partial(binary_accuracy, threshold=threshold),
    }


def labels_like_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels as numbers (samples, k) with the dtype of outputs (samples, k).

    Raises UserError if a sample has more or fewer labels than outputs.
    """
    numbers = labels.reshape(len(labels), -1).to(outputs.dtype)
    if numbers.shape != outputs.shape:
        raise UserError(
            f"the model returns {outputs.shape[1]} numbers per sample, but each sample has {numbers.shape[1]} labels"
        )
    return numbers


def targets_like_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the targets of outputs (samples, k): classes become one-hot vectors, or 0 and 1 if k = 1."""
    if labels.dtype != torch.int64 or outputs.shape[1] == 1:
        return labels_like_outputs(outputs, labels)
    return functional.one_hot(labels, outputs.shape[1]).to(outputs.dtype)


def _compared(compare: PerSample, wanted: PerSample, outputs: Tensor, labels: Tensor) -> Tensor:
    flat = outputs.reshape(len(outputs), -1)
    # Differences and logarithms in half precision would lose most of their digits.
    flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
    return compare(flat, wanted(flat, labels))


def user_loss(name: str) -> Callable[..., Any]:
    """Return the function `path.py:function` of a user. Raises UserError if it cannot be loaded."""
    try:
        return load_user_function(name)
    except USER_CODE_ERRORS as error:
        # A UserError ends the run without retries, which would not repair the user's file.
        raise UserError(f"{name} cannot be used: {error_with_source_line(error)}") from error


def _checked(name: str, function: PerSample, outputs: Tensor, labels: Tensor) -> Tensor:
    try:
        # A copy, because the metrics compare the outputs with the labels after a loss that changes them in place.
        values = function(outputs, labels.clone())
    except USER_CODE_ERRORS as error:
        raise UserError(f"{name}(outputs, targets) failed: {error_with_source_line(error)}") from error
    # A function that returns the mean over samples would train, but its sums would be wrong.
    if not isinstance(values, Tensor) or values.shape != labels.shape[:1]:
        what = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise UserError(
            f"{name} returned {what}; it must return a tensor with one number for each of {len(labels)} samples"
        )
    return values


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of each sample."""
    return functional.mse_loss(outputs, targets, reduction="none").mean(1)


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean absolute error of each sample."""
    return functional.l1_loss(outputs, targets, reduction="none").mean(1)


def huber(outputs: Tensor, targets: Tensor, delta: float = 1.0) -> Tensor:
    """Return error^2 / 2 for |error| up to `delta`, delta (|error| - delta / 2) beyond (Huber 1964).

    `delta` is in the unit of the targets.
    """
    return functional.huber_loss(outputs, targets, reduction="none", delta=delta).mean(1)


def binary_cross_entropy(outputs: Tensor, targets: Tensor, probabilities: bool = False) -> Tensor:
    """Return -w log p - (1 - w) log(1 - p): w is the target; p the output or its logistic function.

    Outputs are logits, or probabilities if `probabilities`; targets are from 0 to 1.
    """
    if not probabilities:
        return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)
    p = outputs.clamp(PROBABILITY_EPSILON, 1 - PROBABILITY_EPSILON)
    # lerp(a, b, w) = (1 - w) a + w b; log1p(-p) is accurate for small p, unlike log(1 - p).
    return -torch.lerp(torch.log1p(-p), p.log(), targets).mean(1)


def binary_accuracy(outputs: Tensor, targets: Tensor, threshold: float = 0.0) -> Tensor:
    """Return the fraction of outputs on the right side of the threshold; NaN is on no side.

    A target above 0.5 is positive, an output above the threshold.
    """
    is_right = ((outputs > threshold) == (targets > 0.5)) & ~(outputs.isnan() | targets.isnan())
    return is_right.to(outputs.dtype).mean(1)


def hinge(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return max(0, 1 - right + max(0, others)) for one-hot classes, as Keras' categorical_hinge.

    A single output has the loss max(0, 1 - output) for class 1 and max(0, 1 + output) for class 0.
    """
    if outputs.shape[1] == 1:
        return (1 - (2 * targets - 1) * outputs).clamp(min=0)[:, 0]
    right = (targets * outputs).sum(1)
    return (1 - right + ((1 - targets) * outputs).amax(1)).clamp(min=0)


def cross_entropy(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log softmax(scores) of the class; `smoothing` of the label's weight is spread evenly over all classes.

    Scores are logits, (samples, classes), or (samples, 1) of class 1, beside a score of 0 of class 0. Labels are classes,
    int64 (samples,), or probabilities, (samples, classes) or (samples, 1) of class 1.
    """
    if scores.shape[1] == 1:
        scores = functional.pad(scores, (1, 0))
    labels = _of_both_classes(labels)
    # Probabilities of a wider dtype would give the loss that dtype, too.
    labels = labels if labels.dtype == torch.int64 else labels.to(scores.dtype)
    return functional.cross_entropy(scores, labels, reduction="none", label_smoothing=smoothing)


def cross_entropy_of_probabilities(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log p of the class, p scaled to sum 1 and clipped, as in Keras' categorical_crossentropy.

    Outputs are probabilities, (samples, classes), or (samples, 1) of class 1; for labels see `cross_entropy`.
    """
    outputs = _of_both_classes(outputs)
    return cross_entropy(
        (outputs / outputs.sum(1, keepdim=True)).clamp(PROBABILITY_EPSILON, 1 - PROBABILITY_EPSILON).log(),
        labels,
        smoothing,
    )


def _of_both_classes(values: Tensor) -> Tensor:
    """Return probabilities (samples, 1) of class 1 as (samples, 2), other values unchanged."""
    return torch.cat([1 - values, values], 1) if values.shape[1:] == (1,) else values


def nll(logarithms: Tensor, labels: Tensor) -> Tensor:
    """Return -log p of the class, for a model that outputs log p. Raises UserError for a single output."""
    if logarithms.shape[1] == 1:
        raise UserError(
            "nll needs one output for each class, but the model returns 1; use binary_cross_entropy or cross_entropy"
        )
    return functional.nll_loss(logarithms, classes_only(labels, "nll"), reduction="none")


def predicted(outputs: Tensor, threshold: float = 0.0) -> Tensor:
    """Return the class of the highest output, the lowest of equal ones; -1 if an output is NaN.

    A single output is class 1 if above the threshold.
    """
    # The highest of outputs with a NaN is NaN.
    values, highest = outputs.max(1)
    if outputs.shape[1] == 1:
        highest = (values > threshold).long()
    return torch.where(values.isnan(), NO_CLASS, highest)


def class_probabilities(outputs: Tensor, loss: str, probabilities: bool) -> Tensor | None:
    """Return the probability of each class, (samples, classes), that a loss gives to outputs; None for other losses.

    `probabilities` says that the outputs, (samples, classes) or (samples, 1) of class 1, are probabilities themselves.
    """
    if probabilities:
        return _of_both_classes(outputs)
    if loss == "cross_entropy":
        return functional.pad(outputs, (1, 0) if outputs.shape[1] == 1 else (0, 0)).softmax(1)
    if loss == "binary_cross_entropy":
        return _of_both_classes(outputs.sigmoid())
    return outputs.exp() if loss == "nll" else None


def output_table(
    problem: ClassificationConfig | RegressionConfig, loss: str, outputs: Tensor
) -> tuple[str, Tensor]:
    """Return what the numbers of an output are, and these numbers, (samples, k) of float32 on the CPU.

    They are the `probability` of each class, or a `score` if the loss gives no probabilities, or each `value` of a regression.
    """
    numbers = outputs.reshape(len(outputs), -1).float().cpu()
    if isinstance(problem, RegressionConfig):
        return "value", numbers
    shares = class_probabilities(numbers, loss, problem.outputs == "probabilities")
    return ("score", numbers) if shares is None else ("probability", shares)


def accuracy(outputs: Tensor, labels: Tensor, threshold: float = 0.0, name: str = "accuracy") -> Tensor:
    """Return True for each sample if its predicted class is its label and no output is NaN."""
    return predicted(outputs, threshold) == classes_only(labels, name)


def top_k_accuracy(outputs: Tensor, labels: Tensor, k: int, threshold: float = 0.0) -> Tensor:
    """Return True for each sample if its class has one of the k highest outputs and no output is NaN.

    Of equal outputs, the output of the lower class counts as higher, as in `predicted`; k may exceed the
    number of classes.
    """
    labels = classes_only(labels, f"top{k}_accuracy")
    has_nan = outputs.isnan().any(1)
    if outputs.shape[1] == 1:
        # Of two classes, one is on each side of the threshold.
        return ((predicted(outputs, threshold) == labels) | (k > 1)) & ~has_nan
    # topk would select any of equal outputs.
    best = torch.sort(outputs, dim=1, descending=True, stable=True).indices[:, :k]
    return (best == labels[:, None]).any(1) & ~has_nan


def classes_only(labels: Tensor, metric: str) -> Tensor:
    """Return `labels` if they are classes, int64 (samples,). Raises UserError otherwise."""
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise UserError(
            f"{metric} needs one class for each sample, but the labels are {labels.dtype} of shape "
            f"{tuple(labels.shape[1:])}; for several binary labels per sample, set loss: binary_cross_entropy "
            f"and metrics: [binary_accuracy]"
        )
    return labels
