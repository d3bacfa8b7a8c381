"""Learn from samples that have answers: classes or numbers."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from nnlo_lib.problems.outputs import Outputs
from nnlo_lib.problems.problem import Objective

Measure = Callable[[Outputs, Tensor], Tensor]  # what the model returns, labels (samples, ...) -> (samples,)
Predicted = Callable[[Outputs], Tensor]  # what the model returns -> (samples,) classes


class Supervised:
    """A loss and metrics, a number for each sample, over a model's outputs and labels; of classes the predicted ones."""

    def __init__(
        self, losses: Measure, metrics: Mapping[str, Measure], predicted: Predicted | None = None
    ) -> None:
        self.names = ("loss", *metrics)
        self.losses, self.predicted = losses, predicted
        self._metrics = list(metrics.values())

    def objective(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> Objective:
        """Return the mean loss of a mini-batch, and its sums."""
        outputs = module(*inputs)
        loss = self.losses(outputs, targets).mean()
        return Objective(loss, lambda: self.sums(outputs, targets, loss))

    @torch.no_grad()
    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums of what the model makes of some samples."""
        return self.measured(module(*inputs), targets)

    def measured(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """Return the sums of what a model answered."""
        return self.sums(outputs, labels, self.losses(outputs, labels).mean())

    def sums(self, outputs: Outputs, labels: Tensor, loss: Tensor) -> Tensor:
        """Return what adds up over mini-batches: samples, summed loss, summed metrics, float64."""
        with torch.no_grad():
            counts = [metric(outputs, labels).sum() for metric in self._metrics]
            samples = len(labels)
            return torch.tensor([samples, float(loss) * samples, *map(float, counts)], dtype=torch.float64)

    def sums_by_node(self, outputs: Outputs, labels: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
        """Return the `sums` of each of n nodes, whose samples follow each other in n equal, padded parts.

        losses: (n * width,), counts: (n,) real samples of each part. Returns (n, 1 + names).
        """
        with torch.no_grad():
            kinds = torch.stack([losses, *(metric(outputs, labels) for metric in self._metrics)]).double()
            parts = kinds.view(len(kinds), len(counts), -1)
            real = torch.arange(parts.shape[2], device=parts.device) < counts[:, None]
            return torch.cat([counts[:, None].double(), (parts * real).sum(2).T], 1)

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name."""
        samples, *totals = sums.tolist()
        return {name: total / samples for name, total in zip(self.names, totals, strict=True) if samples}
