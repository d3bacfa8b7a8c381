"""Losses and metrics of classes: (samples, classes) outputs, (samples,) labels -> (samples,) values."""

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.regression_losses import PROBABILITY_EPSILON

NO_CLASS = -1  # prediction from outputs of which one is NaN


def cross_entropy(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log softmax(scores) of the class.

    Args:
        scores: logits, (samples, classes), or (samples, 1) of class 1, beside a score of 0 of class 0.
        labels: classes, int64 (samples,), or probabilities, (samples, classes) or (samples, 1) of class 1.
        smoothing: share of the label's weight that is spread evenly over all classes.
    """
    if scores.shape[1] == 1:
        scores = functional.pad(scores, (1, 0))
    labels = _of_both_classes(labels)
    # Probabilities of a wider dtype would give the loss that dtype, too.
    labels = labels if labels.dtype == torch.int64 else labels.to(scores.dtype)
    return functional.cross_entropy(scores, labels, reduction="none", label_smoothing=smoothing)


def cross_entropy_of_probabilities(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log p of the class, p scaled to sum 1 and clipped, as in Keras' categorical_crossentropy.

    Args:
        outputs: probabilities, (samples, classes), or (samples, 1) of class 1.
        labels: classes, int64 (samples,), or probabilities, (samples, classes) or (samples, 1) of class 1.
        smoothing: share of the label's weight that is spread evenly over all classes.
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
    highest = (outputs[:, 0] > threshold).long() if outputs.shape[1] == 1 else outputs.argmax(1)
    return torch.where(_has_nan(outputs), NO_CLASS, highest)


def accuracy(outputs: Tensor, labels: Tensor, threshold: float = 0.0) -> Tensor:
    """Return True for each sample if its predicted class is its label and no output is NaN.

    Args:
        outputs: scores or probabilities, (samples, classes), or (samples, 1) for two classes.
        labels: classes, int64 (samples,).
        threshold: number above which a single output is class 1.
    """
    return predicted(outputs, threshold) == classes_only(labels, "accuracy")


def top_k_accuracy(outputs: Tensor, labels: Tensor, k: int, threshold: float = 0.0) -> Tensor:
    """Return True for each sample if its class has one of the k highest outputs and no output is NaN.

    Of equal outputs, the output of the lower class counts as higher, as in `predicted`.

    Args:
        outputs: scores or probabilities, (samples, classes), or (samples, 1) for two classes.
        labels: classes, int64 (samples,).
        k: number of outputs; may exceed the number of classes.
        threshold: number above which a single output is class 1.
    """
    labels = classes_only(labels, f"top{k}_accuracy")
    if outputs.shape[1] == 1:
        # Of two classes, one is on each side of the threshold.
        return ((predicted(outputs, threshold) == labels) | (k > 1)) & ~_has_nan(outputs)
    # topk would select any of equal outputs.
    best = torch.sort(outputs, dim=1, descending=True, stable=True).indices[:, :k]
    return (best == labels[:, None]).any(1) & ~_has_nan(outputs)


def _has_nan(outputs: Tensor) -> Tensor:
    return outputs.isnan().any(1)


def classes_only(labels: Tensor, metric: str) -> Tensor:
    """Return `labels` if they are classes, int64 (samples,). Raises UserError otherwise."""
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise UserError(
            f"{metric} needs one class for each sample, but the labels are {labels.dtype} of shape "
            f"{tuple(labels.shape[1:])}; for several binary labels per sample, set loss: binary_cross_entropy "
            f"and metrics: [binary_accuracy]"
        )
    return labels
