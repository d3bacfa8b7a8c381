"""Classification of every token of a text, or every pixel of an image."""

from functools import partial

import torch
from torch import Tensor

from nnlo_lib.config import Run
from nnlo_lib.config.problem import DenseClassificationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.dense_metrics import (
    DENSE_METRICS,
    PER_CLASS,
    PLACES,
    dense_counts,
    flat_places,
    place_entropy,
)
from nnlo_lib.problems.multi_output import Outputs
from nnlo_lib.problems.supervised import SupervisedProblem


class DenseClassificationProblem(SupervisedProblem):
    """Cross-entropy of the places of a sample, and metrics of summed counts.

    The loss of a sample is the mean over its counted places, so that the loss of a batch is a mean over samples for any
    number of ranks. Metrics are of all counted places together: sums are (1 + 1 + counts,), see `dense_counts`, and
    metrics follow from the sums, not from the metrics of batches.
    """

    def __init__(self, config: DenseClassificationConfig, metrics: tuple[str, ...]) -> None:
        super().__init__(
            partial(_sample_losses, config), {name: partial(_sample_losses, config) for name in metrics}
        )
        self._config, self._names = config, metrics

    @classmethod
    def from_config(cls, config: DenseClassificationConfig, run: Run) -> "DenseClassificationProblem":  # type: ignore[override]
        return cls(config, run.metrics)

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
            head = torch.tensor([len(labels), float(loss) * len(labels)], dtype=torch.float64)
            return torch.cat([head, self._counts(outputs, labels).sum(0).cpu()])

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

    Args:
        config: settings of the problem.
        outputs: output of the model.
        labels: classes, (samples, places ...).
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


def _sample_losses(config: DenseClassificationConfig, outputs: Outputs, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the counted places of each sample; 0 without a counted place.

    Args:
        config: settings of the problem.
        outputs: output of the model.
        labels: classes, (samples, places ...).
    """
    _, truth, entropy = _places(config, outputs, labels)
    return entropy.sum(1) / (truth != config.ignore_index).sum(1).clamp(min=1)
