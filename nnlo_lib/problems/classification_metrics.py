"""Losses and metrics of classes: (samples, classes) outputs, (samples,) labels -> (samples,) values."""

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.regression_losses import PROBABILITY_EPSILON


def cross_entropy(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log softmax(scores) of the class.

    Args:
        scores: logits, (samples, classes).
        labels: classes, int64 (samples,), or probabilities, (samples, classes).
        smoothing: share of the label's weight that is spread evenly over all classes.
    """
    # Probabilities of a wider dtype would give the loss that dtype, too.
    labels = labels if labels.dtype == torch.int64 else labels.to(scores.dtype)
    return functional.cross_entropy(scores, labels, reduction="none", label_smoothing=smoothing)


def cross_entropy_of_probabilities(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return -log p of the class, p scaled to sum 1 and clipped, as in Keras' categorical_crossentropy.

    Args:
        outputs: probabilities, (samples, classes).
        labels: classes, int64 (samples,), or probabilities, (samples, classes).
        smoothing: share of the label's weight that is spread evenly over all classes.
    """
    return cross_entropy(
        (outputs / outputs.sum(1, keepdim=True)).clamp(PROBABILITY_EPSILON, 1 - PROBABILITY_EPSILON).log(),
        labels,
        smoothing,
    )


def nll(logarithms: Tensor, labels: Tensor) -> Tensor:
    """Return -log p of the class, for a model that outputs log p."""
    return functional.nll_loss(logarithms, classes_only(labels, "nll"), reduction="none")


def predicted(outputs: Tensor, probabilities: bool = False) -> Tensor:
    """Return the class of the highest output; a single output is class 1 if above 0 (probabilities: 0.5)."""
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > (0.5 if probabilities else 0.0)).long()
    return outputs.argmax(1)


def accuracy(outputs: Tensor, labels: Tensor, probabilities: bool = False) -> Tensor:
    """Return True for each sample if its predicted class is its label.

    Args:
        outputs: scores or probabilities, (samples, classes), or (samples, 1) for two classes.
        labels: classes, int64 (samples,).
        probabilities: True if a single output is a probability, with the threshold 0.5 instead of 0.
    """
    return predicted(outputs, probabilities) == classes_only(labels, "accuracy")


def top_k_accuracy(outputs: Tensor, labels: Tensor, k: int) -> Tensor:
    """Return True for each sample if its class has one of the k highest outputs.

    Args:
        outputs: scores or probabilities, (samples, classes).
        labels: classes, int64 (samples,).
        k: number of outputs; may exceed the number of classes.
    """
    best = outputs.topk(min(k, outputs.shape[1]), 1).indices
    return (best == classes_only(labels, f"top{k}_accuracy")[:, None]).any(1)


def classes_only(labels: Tensor, metric: str) -> Tensor:
    """Return `labels` if they are classes, int64 (samples,). Raises UserError otherwise."""
    if labels.dtype != torch.int64 or labels.dim() != 1:
        raise UserError(
            f"{metric} needs one class for each sample, but the labels are {labels.dtype} of shape "
            f"{tuple(labels.shape[1:])}; for several binary labels per sample, set loss: binary_cross_entropy "
            f"and metrics: [binary_accuracy]"
        )
    return labels
