"""Measure a model on samples it was not trained on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.data.split import Split
from nnlo_lib.errors import UserError
from nnlo_lib.models.build import build
from nnlo_lib.problems.classification import Classification

BATCH = 1000  # samples per forward pass; bounds the memory, changes no result beyond rounding


def to_tensors(
    features: NDArray[Any], labels: NDArray[Any], scale: float, device: str
) -> tuple[Tensor, Tensor]:
    """Move a mini-batch to `device`, channels last; stored bytes become float32 in 0..1 only here."""
    stored = torch.from_numpy(features).to(device)
    if stored.dim() == 4:
        stored = stored.contiguous(memory_format=torch.channels_last)
    values = stored.float().mul_(scale)
    return values, torch.from_numpy(labels).to(device)


@torch.no_grad()
def predict(
    module: nn.Module, split: Split, indices: NDArray[Any], scale: float, device: str
) -> Iterator[tuple[Tensor, Tensor]]:
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


def evaluate_model(run: Run, manifest: Path, model: Path, output: Path) -> None:
    """Write samples, loss, metrics and confusion matrix of a saved model on the test split.

    Raises UserError if the file does not hold this run's model.
    """
    data = Manifest.load(manifest)
    module = build(run.model.name, run.model.args, data.shape, data.classes, seed=0)
    try:
        module.load_state_dict(load_file(model))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{model} does not hold the model {run.model.name}: {error}") from error
    problem = Classification(run.loss, run.metrics)
    report = test_report(module, Split(data, "test"), data.scale, data.classes, problem)
    with replacing(output) as part:
        part.write_text(json.dumps(report, indent=1))


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
