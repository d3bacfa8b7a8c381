"""Measure a model on samples it was not trained on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.data.partition_file import load
from nnlo_lib.data.readers import Indices
from nnlo_lib.data.split import Split
from nnlo_lib.errors import UserError
from nnlo_lib.models.build import build
from nnlo_lib.problems.classification import Classification
from nnlo_lib.train.data import PARTITION
from nnlo_lib.train.tensors import Tensors

BATCH = 500  # samples per forward pass; bounds the memory, changes no result beyond rounding


@torch.no_grad()
def predict(
    module: nn.Module, split: Split, samples: Indices, tensors: Tensors
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (scores, labels) of some samples of a split, batch by batch."""
    module.eval()
    for start in range(0, len(samples), BATCH):
        inputs, labels = tensors(*split.take(samples[start : start + BATCH]))
        yield module(*inputs), labels


def evaluation_sums(
    module: nn.Module, split: Split, samples: Indices, tensors: Tensors, problem: Classification
) -> Tensor:
    """Return `problem.sums` over some samples of a split."""
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    for scores, labels in predict(module, split, samples, tensors):
        total += problem.sums(scores, labels, problem.loss(scores, labels))
    return total


def evaluate_model(run: Run, manifest: Path, model: Path, output: Path) -> None:
    """Write samples, loss, metrics and confusion matrix of a saved model on the test split.

    Without a test split it is measured on the samples that validated, as the partition beside the model says.
    Raises UserError if the file does not hold this run's model.
    """
    data = Manifest.load(manifest)
    tensors, classes = Tensors(data, run.data, "cpu"), data.classes_called
    module = build(run.model.name, run.model.args, tensors.shape, len(classes), seed=0)
    try:
        module.load_state_dict(load_file(model))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{model} does not hold the model {run.model.name}: {error}") from error
    report = {"classes": classes, **_measured(module, data, tensors, run, model.parent / PARTITION)}
    with replacing(output) as part:
        part.write_text(json.dumps(report, indent=1))


def _measured(
    module: nn.Module, data: Manifest, tensors: Tensors, run: Run, partition: Path
) -> dict[str, Any]:
    name, split, samples = _unseen(data, partition)
    problem, classes = Classification(run.loss, run.metrics), len(data.classes_called)
    return {"split": name, **test_report(module, split, samples, tensors, problem, classes)}


def _unseen(data: Manifest, partition: Path) -> tuple[str, Split, Indices]:
    for name in ("test", "validation"):
        if name in data.splits:
            split = Split(data, name)
            return name, split, np.arange(len(split))
    return "held back", Split(data, "train"), load(partition)[0]


def test_report(
    module: nn.Module, split: Split, samples: Indices, tensors: Tensors, problem: Classification, classes: int
) -> dict[str, Any]:
    """Return samples, loss, metrics and the confusion matrix (true x predicted) of some samples of a split."""
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    confusion = np.zeros((classes, classes), np.int64)
    for scores, labels in predict(module, split, samples, tensors):
        total += problem.sums(scores, labels, problem.loss(scores, labels))
        np.add.at(confusion, (labels.numpy(), scores.argmax(1).numpy()), 1)
    return {"samples": len(samples), **problem.means(total), "confusion": confusion.tolist()}
