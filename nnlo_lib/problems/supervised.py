"""Supervised problems: samples are labeled with classes or numbers."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.config.metrics import metric_column
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.problems.classification_metrics import predicted
from nnlo_lib.problems.losses import decision_threshold, loss_by_name, metric_by_name
from nnlo_lib.problems.multi_output import (
    MultiOutputLoss,
    Outputs,
    loss_of_output,
    metric_of_output,
    primary_output,
)
from nnlo_lib.problems.regularization import regularization_loss

Measure = Callable[[Outputs, Tensor], Tensor]  # model outputs, labels (samples, ...) -> (samples,)
Predicted = Callable[[Outputs], Tensor]  # model outputs -> (samples,) classes


class SupervisedProblem(Problem):
    """A loss and metrics of a model's outputs and labels: one number for each sample.

    The loss includes the model's regularization loss, in training and in evaluation, as in Keras.

    Attributes:
        predicted: returns the predicted classes; None for regression.
    """

    adds_regularization = True

    def __init__(
        self, losses: Measure, metrics: Mapping[str, Measure], predicted: Predicted | None = None
    ) -> None:
        self.names = ("loss", *metrics)
        self.losses, self.predicted = losses, predicted
        self._metrics = list(metrics.values())

    @classmethod
    def from_config(cls, config: ClassificationConfig | RegressionConfig, run: Run) -> "SupervisedProblem":
        """Return the problem of a classification or regression run."""
        metrics = {
            metric_column(name): metric_of_output(name, run.loss, partial(metric_by_name, config))
            for name in run.metrics
        }
        losses = MultiOutputLoss(run.loss, run.loss_weights, partial(loss_by_name, config))
        if isinstance(config, RegressionConfig):
            return cls(losses, metrics)

        def predicted_classes(outputs: Outputs) -> Tensor:
            threshold = decision_threshold(config, loss_of_output(run.loss, outputs))
            return predicted(primary_output(outputs), threshold)

        return cls(losses, metrics, predicted_classes)

    def compute_loss(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> BatchLoss:
        outputs = module(*inputs)
        loss, penalty = self.losses(outputs, targets).mean(), regularization_loss(module)
        loss = loss if penalty is None else loss + penalty
        # On demand: the trainer computes metrics after the exchange of gradients has begun.
        return BatchLoss(loss, lambda: self.sums(outputs, targets, loss))

    @torch.no_grad()
    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        return self.sums_of_outputs(module(*inputs), targets, regularization_loss(module))

    def sums_of_outputs(self, outputs: Outputs, labels: Tensor, penalty: Tensor | None = None) -> Tensor:
        """Return the sums of a model's outputs.

        Args:
            outputs: model outputs.
            labels: labels, (samples, ...).
            penalty: regularization loss of the model, which belongs to the loss.
        """
        loss = self.losses(outputs, labels).mean()
        return self.sums(outputs, labels, loss if penalty is None else loss + penalty)

    def values_of_outputs(self, outputs: Outputs, labels: Tensor, penalty: Tensor | None = None) -> Tensor:
        """Return loss and metrics of each sample, (len(names), samples).

        Args:
            outputs: model outputs.
            labels: labels, (samples, ...).
            penalty: regularization loss of the model, added to the loss of each sample.
        """
        values = torch.stack([measure(outputs, labels).float() for measure in (self.losses, *self._metrics)])
        if penalty is not None:
            values[0] += penalty
        return values

    def sums(self, outputs: Outputs, labels: Tensor, loss: Tensor) -> Tensor:
        """Return the sums of a mini-batch, float64 (see Problem).

        Args:
            outputs: model outputs.
            labels: labels, (samples, ...).
            loss: mean loss of the samples, a scalar.
        """
        with torch.no_grad():
            counts = [metric(outputs, labels).sum() for metric in self._metrics]
            samples = len(labels)
            # Sums, not means: mini-batches and shares of ranks may have different sizes.
            return torch.tensor([samples, float(loss) * samples, *map(float, counts)], dtype=torch.float64)

    def sums_by_node(self, outputs: Outputs, labels: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
        """Return the `sums` of each of n nodes, (n, 1 + len(names)).

        The samples of the nodes follow each other in n parts that are padded to the same width.

        Args:
            outputs: model outputs for n * width samples.
            labels: labels of n * width samples.
            losses: (n * width,) loss of each sample.
            counts: (n,) number of real samples in each part.
        """
        with torch.no_grad():
            kinds = torch.stack([losses, *(metric(outputs, labels) for metric in self._metrics)]).double()
            parts = kinds.view(len(kinds), len(counts), -1)
            real = torch.arange(parts.shape[2], device=parts.device) < counts[:, None]
            # Not a product, which would be NaN for padding with an infinite or NaN value.
            return torch.cat([counts[:, None].double(), torch.where(real, parts, 0.0).sum(2).T], 1)
