"""Evaluation of a model on the samples of a split."""

import json
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.content_checksum import with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.loading.prefetch import prefetched
from nnlo_lib.data.partition.partition_file import load_partition
from nnlo_lib.data.readers import Array, Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.base import Problem
from nnlo_lib.problems.factory import build_problem as build_problem
from nnlo_lib.problems.regularization import regularization_loss
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.train.evaluation.published_model import EVALUATION_BATCH_SIZE, load_published_model
from nnlo_lib.train.replica.device import evaluation_device
from nnlo_lib.train.replica.preprocess import Preprocessor

T = TypeVar("T")
Batches = Iterable[tuple[tuple[Tensor, ...], Tensor]]  # inputs of the model, labels
READ_AHEAD = 2  # batches that are read while the model computes


@torch.no_grad()
def evaluation_batches(
    module: nn.Module,
    split: Split,
    samples: Indices,
    tensors: Preprocessor,
    size: int = EVALUATION_BATCH_SIZE,
    ahead: int = 0,
) -> Generator[tuple[tuple[Tensor, ...], Tensor]]:
    """Set the module to evaluation mode and yield (inputs, labels) batch by batch.

    Args:
        module: model that the caller applies to the batches.
        split: split that contains the samples.
        samples: indices in the split, (n,).
        tensors: preprocessor of the model's inputs.
        size: samples per batch.
        ahead: batches that a thread reads ahead; 0 reads each batch when it is needed.
    """
    module.eval()
    stored = (split.take(samples[start : start + size]) for start in range(0, len(samples), size))
    with closing(prefetched(stored, ahead) if ahead else stored) as batches:
        for batch in batches:
            yield tensors(*batch)


@torch.no_grad()
def evaluation_sums(module: nn.Module, batches: Batches, problem: Problem) -> Tensor:
    """Return the problem's sums over some batches, (sums,) of float64.

    Args:
        module: model in evaluation mode.
        batches: inputs and labels.
        problem: loss and metrics.
    """
    total = torch.zeros(problem.sums_size, dtype=torch.float64)
    for inputs, labels in batches:
        total += problem.measure(module, inputs, labels)
    return total


def evaluate_model(run: Run, manifest: Path, model: Path, output: Path) -> None:
    """Evaluate a saved model and write the number of samples, loss, metrics and confusion matrix as JSON.

    Loss and metrics of each sample are written beside it, to sample_metrics.npz.

    The samples are the test split; without one, the validation split; without either, the held-out samples of
    the training split, from the partition file next to the model. The device of the training is used, if this
    machine has it, otherwise the CPU.

    Args:
        run: configuration with which the model was trained.
        manifest: manifest of the data store.
        model: safetensors file with the weights.
        output: JSON file to write.

    Raises:
        UserError: if `model` does not contain the weights of this run's model, or if the user's files have
            changed since the training.
    """
    data = DataManifest.load(manifest)
    module, tensors = load_published_model(run, data, model, evaluation_device(run.parallel))
    name, split, samples = evaluation_samples(data, RunPaths(model.parent).partition)
    result = test_result_of_run(run, module, tensors, split, samples, data.classes)
    values = RunPaths(output.parent).sample_metrics
    with atomic_write(values) as part:
        write_shard(part, "npz", result.values)
    described = {
        "model_sha256": file_sha256(model),
        "outputs": {values.name: file_sha256(values)},
        "classes": data.class_labels,
        "split": name,
        "samples": len(samples),
    }
    report = with_checksum({**described, **result.report})
    with atomic_write(output) as part:
        part.write_text(json.dumps(report, indent=1))


def test_result_of_run(
    run: Run, module: nn.Module, tensors: Preprocessor, split: Split, samples: Indices, classes: int | None
) -> "TestResult":
    """Return the result of a run's model on samples of a split, in batches that fit into the memory.

    Args:
        run: settings of the problem, the loss and the metrics.
        module: model to evaluate.
        tensors: preprocessor of the model's inputs.
        split: split that contains the samples.
        samples: indices in the split, (n,).
        classes: number of classes; None if the labels are no classes.
    """
    problem = build_problem(run)

    def measure(size: int) -> TestResult:
        with closing(evaluation_batches(module, split, samples, tensors, size, READ_AHEAD)) as batches:
            return test_result(module, batches, problem, classes)

    return within_memory(measure)


def within_memory(measure: Callable[[int], T]) -> T:
    """Call `measure` with a number of samples per batch, which is halved while the GPU has too little memory.

    Raises UserError if the memory is too small for a single sample.
    """
    size = EVALUATION_BATCH_SIZE
    while size:
        with suppress(torch.OutOfMemoryError):
            return measure(size)
        torch.cuda.empty_cache()
        size //= 2
    raise UserError(
        "the memory of the GPU is too small to evaluate one sample; end other processes that use the GPU, or hide "
        "it to evaluate on the CPU: CUDA_VISIBLE_DEVICES= nnlo ..."
    )


def evaluation_samples(data: DataManifest, partition: Path) -> tuple[str, Split, Indices]:
    """Return the name, the split and the indices of the samples that evaluate a finished training.

    Args:
        data: data of the training.
        partition: partition file of the training, with its held-out samples.
    """
    for name in ("test", "validation"):
        if name in data.splits:
            split = Split(data, name)
            return name, split, np.arange(len(split))
    return "held back", Split(data, "train"), load_partition(partition)[0]


@dataclass(frozen=True)
class TestResult:
    """The result of an evaluation.

    Attributes:
        report: loss, metrics and, for classes, `confusion` (true x predicted), unless the model predicted
            another class than the classes of the data, or returned NaN.
        values: loss and metrics of each sample by name, (samples,) float32; empty if the problem has none.
    """

    report: dict[str, Any]
    values: dict[str, Array]


@torch.no_grad()
def test_result(module: nn.Module, batches: Batches, problem: Problem, classes: int | None) -> TestResult:
    """Return the result of a model on some samples.

    Args:
        module: model to evaluate, in evaluation mode.
        batches: inputs and labels, on the device of the module.
        problem: loss and metrics.
        classes: number of classes; None if the labels are no classes.
    """
    if not isinstance(problem, SupervisedProblem):
        return TestResult(problem.means(evaluation_sums(module, batches, problem)), {})
    predicted = problem.predicted if classes is not None else None
    total = torch.zeros(problem.sums_size, dtype=torch.float64)
    # One place more than the classes of the data, for other predictions.
    confusion = np.zeros((classes or 0, (classes or 0) + 1), np.int64)
    values = [np.zeros((len(problem.names), 0), np.float32)]
    for inputs, labels in batches:
        outputs = module(*inputs)
        penalty = regularization_loss(module)
        total += problem.sums_of_outputs(outputs, labels, penalty)
        values.append(problem.values_of_outputs(outputs, labels, penalty).cpu().numpy())
        if predicted is not None:
            # `confusion[...] += 1` would count a pair once per batch.
            places = predicted(outputs).cpu().numpy()
            # NO_CLASS is the last place already.
            np.add.at(confusion, (labels.cpu().numpy(), np.minimum(places, confusion.shape[0])), 1)
    is_complete = predicted is not None and not confusion[:, -1].any()
    matrix = {"confusion": confusion[:, :-1].tolist()} if is_complete else {}
    of_samples = dict(zip(problem.names, np.concatenate(values, axis=1), strict=True))
    return TestResult({**problem.means(total), **matrix}, of_samples)
