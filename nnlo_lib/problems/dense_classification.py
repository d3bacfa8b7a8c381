"""Dense classification: a class for every token of a text or pixel of an image, and metrics of summed counts of these places."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.config import Run
from nnlo_lib.config.problem import DenseClassificationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.supervised import Outputs, SupervisedProblem, sums_vector

# Columns of the counts of a sample; behind them, for each class: hits, predictions, places of the class.
PLACES, ENTROPY, RIGHT = range(3)
PER_CLASS = 3


class DenseClassificationProblem(SupervisedProblem):
    """Cross-entropy of the places of a sample, and metrics of summed counts.

    The loss of a sample is the mean over its counted places, so that the loss of a batch is a mean over samples for any
    number of ranks. Metrics are of all counted places together: sums are (1 + 1 + counts,), see `dense_counts`, and
    metrics follow from the sums, not from the metrics of batches.
    """

    def __init__(self, config: DenseClassificationConfig, metrics: tuple[str, ...]) -> None:
        losses = partial(_sample_losses, config)
        super().__init__(losses, dict.fromkeys(metrics, losses))
        self._config, self._names = config, metrics

    @classmethod
    def from_config(cls, config: DenseClassificationConfig, run: Run) -> "DenseClassificationProblem":  # type: ignore[override]
        return cls(config, run.metrics)

    def training_losses(self, outputs: Outputs, labels: Tensor) -> Tensor:
        return _sample_losses(
            self._config, outputs, labels, None if self.class_weights is None else self.weights_of
        )

    @property
    def sums_size(self) -> int:
        return 2 + PLACES + PER_CLASS + PER_CLASS * self._config.classes

    def means(self, sums: Tensor) -> dict[str, float]:
        samples, loss = sums[:2].tolist()
        if not samples:
            return {}
        return {"loss": loss / samples, **{name: DENSE_METRICS[name](sums[2:]) for name in self._names}}

    def sums(self, outputs: Outputs, labels: Tensor, loss: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([sums_vector(len(labels), loss, ()), self._counts(outputs, labels).sum(0)])

    def values_of_outputs(self, outputs: Outputs, labels: Tensor, penalty: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            counts = self._counts(outputs, labels)
            values = [[DENSE_METRICS[name](sample) for sample in counts] for name in self._names]
            losses = self.losses(outputs, labels).float() + (0 if penalty is None else penalty)
            return torch.stack([losses, *(torch.tensor(each).to(losses) for each in values)])

    def sums_by_node(self, outputs: Outputs, labels: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
        with torch.no_grad():
            kinds = torch.cat([losses.double()[:, None], self._counts(outputs, labels)], 1)
            parts = kinds.view(len(counts), -1, kinds.shape[1])
            real = torch.arange(parts.shape[1], device=parts.device) < counts[:, None]
            # Not a product, which would be NaN for padding with an infinite or NaN value.
            return torch.cat([counts[:, None].double(), torch.where(real[..., None], parts, 0.0).sum(1)], 1)

    def _counts(self, outputs: Outputs, labels: Tensor) -> Tensor:
        scores, truth, entropy = _places(self._config, outputs, labels)
        return dense_counts(scores, truth, entropy, truth != self._config.ignore_index)


def _places(
    config: DenseClassificationConfig, outputs: Outputs, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores (samples, classes, places), labels and cross-entropy (samples, places).

    Raises UserError if a label is no class.
    """
    scores, truth = flat_places(outputs, labels, config.classes, config.class_axis)
    stored, truth = truth, truth.long()
    wrong = (truth != config.ignore_index) & ((truth < 0) | (truth >= config.classes)) | (stored != truth)
    if wrong.any():
        raise UserError(
            f"problem.classes: label {stored[wrong][0].item():g} is not one of the {config.classes} classes from 0, and not "
            f"problem.ignore_index ({config.ignore_index}); change the labels or one of these keys"
        )
    return scores, truth, place_entropy(scores, truth, config.ignore_index)


def _sample_losses(
    config: DenseClassificationConfig,
    outputs: Outputs,
    labels: Tensor,
    weights_of: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return the mean (weighted) cross-entropy of the counted places of each sample; 0 without a counted place."""
    _, truth, entropy = _places(config, outputs, labels)
    is_counted = truth != config.ignore_index
    if weights_of:
        entropy = entropy * weights_of(torch.where(is_counted, truth, 0)).to(entropy.dtype)
    return entropy.sum(1) / is_counted.sum(1).clamp(min=1)


def flat_places(outputs: Any, labels: Tensor, classes: int, axis: str) -> tuple[Tensor, Tensor]:
    """Return scores (samples, classes, places) and labels (samples, places).

    The axis of the classes in the output is `first` (after the samples) or `last`. Raises UserError if the output is
    not a tensor of the shape of the labels with this axis.
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


def place_entropy(outputs: Tensor, labels: Tensor, ignored: int) -> Tensor:
    """Return -log softmax of the class of each place, (samples, places); 0 for places with the label `ignored`."""
    wide = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    return functional.cross_entropy(wide, labels, reduction="none", ignore_index=ignored)


def dense_counts(outputs: Tensor, labels: Tensor, entropy: Tensor, is_counted: Tensor) -> Tensor:
    """Return the counts of each sample, (samples, 3 + 3 classes) of float64, for the places where `is_counted`.

    Outputs are scores, (samples, classes, places), the other arguments (samples, places); `entropy` is 0 where a place does
    not count.
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


def _overlap(counts: Tensor, factor: float, shared: float) -> float:
    """Return the mean over the classes that occur of factor * hits / (predictions + places - shared * hits)."""
    hits, guesses, truths = counts[PLACES + PER_CLASS :].view(PER_CLASS, -1)
    size = guesses + truths - shared * hits
    return float((factor * hits / size)[size > 0].mean())


def _balanced_accuracy(counts: Tensor) -> float:
    """Return the mean over the classes that have places of hits / places."""
    hits, _, truths = counts[PLACES + PER_CLASS :].view(PER_CLASS, -1)
    return float((hits / truths)[truths > 0].mean())


# Metrics of summed counts; NaN without counted places.
DENSE_METRICS: dict[str, Callable[[Tensor], float]] = {
    "accuracy": lambda counts: float(counts[RIGHT] / counts[PLACES]),
    "balanced_accuracy": _balanced_accuracy,
    "cross_entropy": lambda counts: float(counts[ENTROPY] / counts[PLACES]),
    "perplexity": lambda counts: float((counts[ENTROPY] / counts[PLACES]).exp()),
    "iou": lambda counts: _overlap(counts, 1.0, 1.0),
    "dice": lambda counts: _overlap(counts, 2.0, 0.0),
}
