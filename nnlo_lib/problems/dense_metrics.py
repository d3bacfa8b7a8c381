"""Counts of the places of samples, tokens or pixels, that add up over samples, and the metrics that follow from them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.core.errors import UserError

# Columns of the counts of a sample; behind them, for each class: hits, predictions, places of the class.
PLACES, ENTROPY, RIGHT = range(3)
PER_CLASS = 3


def dense_counts(outputs: Tensor, labels: Tensor, entropy: Tensor, is_counted: Tensor) -> Tensor:
    """Return the counts of each sample, (samples, 3 + 3 classes) of float64.

    Args:
        outputs: scores, (samples, classes, places).
        labels: classes, (samples, places).
        entropy: cross-entropy of each place, (samples, places); 0 if the place does not count.
        is_counted: True for the places that count, (samples, places).
    """
    classes = outputs.shape[1]
    # A place with a NaN is of no class, as in the other metrics.
    guess = torch.where(outputs.isnan().any(1), classes, outputs.argmax(1))
    guess, truth = (torch.where(is_counted, each, classes + 1) for each in (guess, labels))
    is_right = is_counted & (guess == labels)
    hits = torch.where(is_right, labels, classes)
    by_class = [_histogram(each, classes) for each in (hits, guess, truth)]
    columns = [is_counted.sum(1), entropy.double().sum(1), is_right.sum(1)]
    return torch.cat([torch.stack([each.double() for each in columns], 1), *by_class], 1)


def _histogram(values: Tensor, classes: int) -> Tensor:
    """Return the number of places of each class, (samples, classes); values beyond the classes are left out."""
    counts = torch.zeros(len(values), classes + 2, dtype=torch.float64, device=values.device)
    counts.scatter_add_(1, values, torch.ones_like(values, dtype=torch.float64))
    return counts[:, :classes]


def place_entropy(outputs: Tensor, labels: Tensor, ignored: int) -> Tensor:
    """Return -log softmax of the class of each place, (samples, places); 0 for ignored places.

    Args:
        outputs: scores, (samples, classes, places).
        labels: classes, (samples, places).
        ignored: label of the places that do not count.
    """
    wide = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    return functional.cross_entropy(wide, labels, reduction="none", ignore_index=ignored)


def _overlap(counts: Tensor, shared: Callable[[Tensor, Tensor], Tensor], factor: float) -> float:
    """Return the mean over the classes that occur of factor * hits / size.

    Args:
        counts: summed counts, (3 + 3 classes,).
        shared: size from hits and from predictions plus places of the class.
        factor: factor on the hits.
    """
    hits, guesses, truths = counts[PLACES + PER_CLASS :].view(PER_CLASS, -1)
    size = shared(hits, guesses + truths)
    occurs = size > 0
    return float((factor * hits[occurs] / size[occurs]).mean())


def _share(counts: Tensor, column: int) -> float:
    return float(counts[column] / counts[PLACES])


# Metrics of summed counts; NaN without counted places.
DENSE_METRICS: dict[str, Callable[[Tensor], float]] = {
    "accuracy": lambda counts: _share(counts, RIGHT),
    "cross_entropy": lambda counts: _share(counts, ENTROPY),
    "perplexity": lambda counts: float((counts[ENTROPY] / counts[PLACES]).exp()),
    "iou": lambda counts: _overlap(counts, lambda hits, both: both - hits, 1.0),
    "dice": lambda counts: _overlap(counts, lambda hits, both: both, 2.0),
}


def flat_places(outputs: Any, labels: Tensor, classes: int, axis: str) -> tuple[Tensor, Tensor]:
    """Return scores (samples, classes, places) and labels (samples, places).

    Args:
        outputs: output of the model.
        labels: classes, (samples, ...).
        classes: number of classes.
        axis: axis of the classes, `first` (after the samples) or `last`.

    Raises:
        UserError: if the output is not a tensor of the shape of the labels with an axis of the classes.
    """
    shape = tuple(labels.shape)
    wanted = (shape[0], classes, *shape[1:]) if axis == "first" else (*shape, classes)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != wanted or len(shape) < 2:
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise UserError(
            f"problem: dense_classification needs scores of shape {wanted} for labels of shape {shape}, but the model "
            f"returns {found}; change the model, problem.classes ({classes}) or problem.class_axis ({axis})"
        )
    scores = outputs if axis == "first" else outputs.movedim(-1, 1)
    return scores.flatten(2), labels.flatten(1)
