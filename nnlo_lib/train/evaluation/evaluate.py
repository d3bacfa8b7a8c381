"""Evaluation of a model on the samples of a split."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.data.partition.partition_file import load_partition
from nnlo_lib.data.readers import Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.base import Problem
from nnlo_lib.problems.factory import build_problem as build_problem
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.train.evaluation.published_model import EVALUATION_BATCH_SIZE, load_published_model
from nnlo_lib.train.replica.preprocess import Preprocessor


@torch.no_grad()
def evaluation_batches(
    module: nn.Module, split: Split, samples: Indices, tensors: Preprocessor
) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    """Set the module to evaluation mode and yield (inputs, labels) batch by batch.

    Args:
        module: model that the caller applies to the batches.
        split: split that contains the samples.
        samples: indices in the split, (n,).
        tensors: preprocessor of the model's inputs.
    """
    module.eval()
    for start in range(0, len(samples), EVALUATION_BATCH_SIZE):
        yield tensors(*split.take(samples[start : start + EVALUATION_BATCH_SIZE]))


@torch.no_grad()
def evaluation_sums(
    module: nn.Module, split: Split, samples: Indices, tensors: Preprocessor, problem: Problem
) -> Tensor:
    """Return the problem's sums over some samples, (1 + names,) of float64.

    Args:
        module: model to evaluate.
        split: split that contains the samples.
        samples: indices in the split, (n,).
        tensors: preprocessor of the model's inputs.
        problem: loss and metrics.
    """
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    for inputs, labels in evaluation_batches(module, split, samples, tensors):
        total += problem.measure(module, inputs, labels)
    return total


def evaluate_model(run: Run, manifest: Path, model: Path, output: Path) -> None:
    """Evaluate a saved model and write the number of samples, loss, metrics and confusion matrix as JSON.

    The samples are the test split; without one, the validation split; without either, the held-out samples of
    the training split, from the partition file next to the model.

    Args:
        run: configuration with which the model was trained.
        manifest: manifest of the data store.
        model: safetensors file with the weights.
        output: JSON file to write.

    Raises:
        UserError: if `model` does not contain the weights of this run's model.
    """
    data = DataManifest.load(manifest)
    module, tensors = load_published_model(run, data, model)
    report = {
        "classes": data.class_labels,
        **_measured(module, data, tensors, run, RunPaths(model.parent).partition),
    }
    with atomic_write(output) as part:
        part.write_text(json.dumps(report, indent=1))


def _measured(
    module: nn.Module, data: DataManifest, tensors: Preprocessor, run: Run, partition: Path
) -> dict[str, Any]:
    name, split, samples = _evaluation_samples(data, partition)
    problem = build_problem(run)
    return {"split": name, **test_report(module, split, samples, tensors, problem, data.classes)}


def _evaluation_samples(data: DataManifest, partition: Path) -> tuple[str, Split, Indices]:
    for name in ("test", "validation"):
        if name in data.splits:
            split = Split(data, name)
            return name, split, np.arange(len(split))
    return "held back", Split(data, "train"), load_partition(partition)[0]


@torch.no_grad()
def test_report(
    module: nn.Module,
    split: Split,
    samples: Indices,
    tensors: Preprocessor,
    problem: Problem,
    classes: int | None,
) -> dict[str, Any]:
    """Return the number of samples, loss, metrics and, for classes, confusion matrix (true x predicted).

    Args:
        module: model to evaluate, on the CPU.
        split: split that contains the samples.
        samples: indices in the split, (n,).
        tensors: preprocessor of the model's inputs.
        problem: loss and metrics.
        classes: number of classes; None if the labels are no classes.
    """
    if classes is None or not isinstance(problem, SupervisedProblem) or problem.predicted is None:
        sums = evaluation_sums(module, split, samples, tensors, problem)
        return {"samples": len(samples), **problem.means(sums)}
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    confusion = np.zeros((classes, classes), np.int64)
    for inputs, labels in evaluation_batches(module, split, samples, tensors):
        outputs = module(*inputs)
        total += problem.sums_of_outputs(outputs, labels)
        # `confusion[...] += 1` would count a pair once per batch.
        np.add.at(confusion, (labels.numpy(), problem.predicted(outputs).numpy()), 1)
    return {"samples": len(samples), **problem.means(total), "confusion": confusion.tolist()}
