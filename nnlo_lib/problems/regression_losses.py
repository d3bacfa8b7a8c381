"""Losses and metrics between outputs and targets, both (samples, k): the mean over k of each sample.

The multi-class hinge is the exception: it is a single value of all k outputs.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

PROBABILITY_EPSILON = 1e-7  # bounds probabilities away from 0 and 1, as in Keras


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error of each sample."""
    return functional.mse_loss(outputs, targets, reduction="none").mean(1)


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean absolute error of each sample."""
    return functional.l1_loss(outputs, targets, reduction="none").mean(1)


def huber(outputs: Tensor, targets: Tensor, delta: float = 1.0) -> Tensor:
    """Return error^2 / 2 for |error| up to `delta`, delta (|error| - delta / 2) beyond (Huber 1964).

    Args:
        outputs: outputs of the model, (samples, k).
        targets: targets, (samples, k).
        delta: error, in the unit of the targets, at which the square becomes linear.
    """
    return functional.huber_loss(outputs, targets, reduction="none", delta=delta).mean(1)


def binary_cross_entropy(outputs: Tensor, targets: Tensor, probabilities: bool = False) -> Tensor:
    """Return -w log p - (1 - w) log(1 - p): w is the target; p the output or its logistic function.

    Args:
        outputs: logits or probabilities, (samples, k).
        targets: targets from 0 to 1, (samples, k).
        probabilities: True if the outputs are probabilities.
    """
    if not probabilities:
        return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)
    p = outputs.clamp(PROBABILITY_EPSILON, 1 - PROBABILITY_EPSILON)
    # lerp(a, b, w) = (1 - w) a + w b; log1p(-p) is accurate for small p, unlike log(1 - p).
    return -torch.lerp(torch.log1p(-p), p.log(), targets).mean(1)


def binary_accuracy(outputs: Tensor, targets: Tensor, threshold: float = 0.0) -> Tensor:
    """Return the fraction of outputs on the right side of the threshold; NaN is on no side.

    Args:
        outputs: outputs of the model, (samples, k).
        targets: targets, (samples, k); a target above 0.5 is positive.
        threshold: number above which an output is positive.
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


def elementwise(probabilities: bool, threshold: float, delta: float = 1.0) -> dict[str, partial[Tensor]]:
    """Return the functions of this module by name.

    Args:
        probabilities: True if the outputs are probabilities.
        threshold: number above which an output is positive.
        delta: see `huber`.
    """
    return {
        "mse": partial(mse),
        "mae": partial(mae),
        "huber": partial(huber, delta=delta),
        "hinge": partial(hinge),
        "binary_cross_entropy": partial(binary_cross_entropy, probabilities=probabilities),
        "binary_accuracy": partial(binary_accuracy, threshold=threshold),
    }
