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
from nnlo_lib.problems.build import build as build_problem
from nnlo_lib.problems.problem import Problem
from nnlo_lib.problems.supervised import Supervised
from nnlo_lib.train.data import PARTITION
from nnlo_lib.train.outputs import outputs_of
from nnlo_lib.train.replica.initial_model import blank
from nnlo_lib.train.replica.precision import dtype_of
from nnlo_lib.train.replica.tensors import Tensors

BATCH = 500  # samples per forward pass; bounds the memory, changes no result beyond rounding


@torch.no_grad()
def batches(
    module: nn.Module, split: Split, samples: Indices, tensors: Tensors
) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    """Yield (inputs, labels) of some samples of a split, batch by batch, to a model that does not train."""
    module.eval()
    for start in range(0, len(samples), BATCH):
        yield tensors(*split.take(samples[start : start + BATCH]))


@torch.no_grad()
def evaluation_sums(
    module: nn.Module, split: Split, samples: Indices, tensors: Tensors, problem: Problem
) -> Tensor:
    """Return the problem's sums over some samples of a split."""
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    for inputs, labels in batches(module, split, samples, tensors):
        total += problem.measure(module, inputs, labels)
    return total


def evaluate_model(run: Run, manifest: Path, model: Path, output: Path) -> None:
    """Write samples, loss, metrics and confusion matrix of a saved model on the test split.

    Without a test split it is measured on the samples that validated, as the partition beside the model says.
    Raises UserError if the file does not hold this run's model.
    """
    data = Manifest.load(manifest)
    dtype = dtype_of(run.train.precision)
    tensors, outputs = Tensors(data, run.data, "cpu", dtype), outputs_of(run, data)
    module = blank(run, tensors.shape, outputs, seed=0).to(dtype)
    try:
        module.load_state_dict(load_file(model))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{model} does not hold the model {run.model.name}: {error}") from error
    report = {
        "classes": data.classes_called,
        **_measured(module, data, tensors, run, model.parent / PARTITION),
    }
    with replacing(output) as part:
        part.write_text(json.dumps(report, indent=1))


def _measured(
    module: nn.Module, data: Manifest, tensors: Tensors, run: Run, partition: Path
) -> dict[str, Any]:
    name, split, samples = _unseen(data, partition)
    problem = build_problem(run, outputs_of(run, data))
    return {"split": name, **test_report(module, split, samples, tensors, problem, data.classes)}


def _unseen(data: Manifest, partition: Path) -> tuple[str, Split, Indices]:
    for name in ("test", "validation"):
        if name in data.splits:
            split = Split(data, name)
            return name, split, np.arange(len(split))
    return "held back", Split(data, "train"), load(partition)[0]


@torch.no_grad()
def test_report(
    module: nn.Module, split: Split, samples: Indices, tensors: Tensors, problem: Problem, classes: int | None
) -> dict[str, Any]:
    """Return samples, loss and metrics of some samples of a split; of classes the confusion matrix (true x predicted)."""
    if classes is None or not isinstance(problem, Supervised) or problem.predicted is None:
        sums = evaluation_sums(module, split, samples, tensors, problem)
        return {"samples": len(samples), **problem.means(sums)}
    total = torch.zeros(1 + len(problem.names), dtype=torch.float64)
    confusion = np.zeros((classes, classes), np.int64)
    for inputs, labels in batches(module, split, samples, tensors):
        outputs = module(*inputs)
        total += problem.measured(outputs, labels)
        np.add.at(confusion, (labels.numpy(), problem.predicted(outputs).numpy()), 1)
    return {"samples": len(samples), **problem.means(total), "confusion": confusion.tolist()}
