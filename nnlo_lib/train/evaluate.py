"""Measure a model on samples it was not trained on."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nnlo_lib.data.split import Split
from nnlo_lib.problems.classification import Classification

BATCH = 1000  # samples per forward pass; bounds the memory, changes no result beyond rounding


def to_tensors(features: NDArray[Any], labels: NDArray[Any], scale: float, device: str) -> tuple[Tensor, Tensor]:
    """Move a mini-batch to `device`; stored bytes become float32 in 0..1 only here."""
    values = torch.from_numpy(features).to(device).float().mul_(scale)
    return values, torch.from_numpy(labels).to(device)


@torch.no_grad()
def predict(module: nn.Module, split: Split, indices: NDArray[Any], scale: float, device: str) -> Any:
    """Yield (scores, labels) of the samples at `indices`, batch by batch."""
    module.eval()
    for start in range(0, len(indices), BATCH):
        inputs, labels = to_tensors(*split.take(indices[start : start + BATCH]), scale, device)
        yield module(inputs), labels


def evaluation_sums(
    module: nn.Module, split: Split, indices: NDArray[Any], scale: float, device: str, problem: Classification
) -> Tensor:
    """Return `problem.sums` over the samples at `indices`."""
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    for scores, labels in predict(module, split, indices, scale, device):
        total += problem.sums(scores, labels, problem.loss(scores, labels))
    return total


def test_report(
    module: nn.Module, split: Split, scale: float, classes: int, problem: Classification
) -> dict[str, Any]:
    """Return samples, loss, metrics and the confusion matrix (true x predicted) of a whole split."""
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    confusion = np.zeros((classes, classes), np.int64)
    for scores, labels in predict(module, split, np.arange(len(split)), scale, "cpu"):
        total += problem.sums(scores, labels, problem.loss(scores, labels))
        np.add.at(confusion, (labels.numpy(), scores.argmax(1).numpy()), 1)
    return {
        "split": "test",
        "samples": len(split),
        **problem.means(total),
        "confusion": confusion.tolist(),
        "classes": [str(number) for number in range(classes)],
    }
