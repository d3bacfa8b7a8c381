"""Learn which class a sample belongs to."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def mse(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error against one-hot classes."""
    return functional.mse_loss(scores, functional.one_hot(labels, scores.shape[1]).to(scores.dtype))


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Count the samples whose highest score is their class."""
    return (scores.argmax(1) == labels).sum()


def top5_accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Count the samples whose class is among the five highest scores."""
    best = scores.topk(min(5, scores.shape[1]), 1).indices
    return (best == labels[:, None]).any(1).sum()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "mse": mse,
}
METRICS = {"accuracy": accuracy, "top5_accuracy": top5_accuracy}


class Classification:
    """A loss and metrics over (samples, classes) scores and (samples,) labels."""

    def __init__(self, loss: str, metrics: tuple[str, ...]) -> None:
        self.names = ("loss", *metrics)
        self._loss = LOSSES[loss]
        self._metrics = [METRICS[name] for name in metrics]

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a mini-batch."""
        return self._loss(scores, labels)

    def sums(self, scores: Tensor, labels: Tensor, loss: Tensor) -> Tensor:
        """Return what adds up over mini-batches: samples, summed loss, summed metrics, float64."""
        with torch.no_grad():
            counts = [metric(scores, labels) for metric in self._metrics]
            samples = len(labels)
            return torch.tensor([samples, float(loss) * samples, *map(float, counts)], dtype=torch.float64)

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name."""
        samples, *totals = sums.tolist()
        return {name: total / samples for name, total in zip(self.names, totals, strict=True) if samples}
