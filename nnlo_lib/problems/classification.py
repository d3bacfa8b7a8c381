"""Learn which class a sample belongs to."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

PerSample = Callable[[Tensor, Tensor], Tensor]  # (samples, classes) scores, (samples,) labels -> (samples,)


def mse(scores: Tensor, labels: Tensor) -> Tensor:
    """Return each sample's mean squared error against its one-hot class."""
    wanted = functional.one_hot(labels, scores.shape[1]).to(scores.dtype)
    return functional.mse_loss(scores, wanted, reduction="none").mean(1)


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mark the samples whose highest score is their class."""
    return scores.argmax(1) == labels


def top5_accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mark the samples whose class is among the five highest scores."""
    best = scores.topk(min(5, scores.shape[1]), 1).indices
    return (best == labels[:, None]).any(1)


LOSSES: dict[str, PerSample] = {
    "cross_entropy": partial(functional.cross_entropy, reduction="none"),
    "mse": mse,
}
METRICS: dict[str, PerSample] = {"accuracy": accuracy, "top5_accuracy": top5_accuracy}


class Classification:
    """A loss and metrics over (samples, classes) scores and (samples,) labels."""

    def __init__(self, loss: str, metrics: tuple[str, ...]) -> None:
        self.names = ("loss", *metrics)
        self.losses = LOSSES[loss]
        self._metrics = [METRICS[name] for name in metrics]

    def loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a mini-batch."""
        return self.losses(scores, labels).mean()

    def sums(self, scores: Tensor, labels: Tensor, loss: Tensor) -> Tensor:
        """Return what adds up over mini-batches: samples, summed loss, summed metrics, float64."""
        with torch.no_grad():
            counts = [metric(scores, labels).sum() for metric in self._metrics]
            samples = len(labels)
            return torch.tensor([samples, float(loss) * samples, *map(float, counts)], dtype=torch.float64)

    def sums_by_node(self, scores: Tensor, labels: Tensor, losses: Tensor, counts: Tensor) -> Tensor:
        """Return the `sums` of each of n nodes, whose samples follow each other in n equal, padded parts.

        losses: (n * width,), counts: (n,) real samples of each part. Returns (n, 1 + names).
        """
        with torch.no_grad():
            kinds = torch.stack([losses, *(metric(scores, labels) for metric in self._metrics)]).double()
            parts = kinds.view(len(kinds), len(counts), -1)
            real = torch.arange(parts.shape[2], device=parts.device) < counts[:, None]
            return torch.cat([counts[:, None].double(), (parts * real).sum(2).T], 1)

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name."""
        samples, *totals = sums.tolist()
        return {name: total / samples for name, total in zip(self.names, totals, strict=True) if samples}
