"""Evaluation of a published model on the samples of a split, its loading, and an image of a generator's samples."""

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.config.metrics import metric_column
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import atomic_write, file_sha256, with_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.loader import prefetched
from nnlo_lib.data.partition import load_partition
from nnlo_lib.data.readers.base import Array, Indices
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest, manifest_fingerprint
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.training_moments import with_moments
from nnlo_lib.problems.base import Problem, build_problem, regularization_loss
from nnlo_lib.problems.gan import fixed_noise
from nnlo_lib.problems.set_metrics import set_metric
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_results import refuse_changed_code
from nnlo_lib.train.replica.device import evaluation_device
from nnlo_lib.train.replica.model_build import build_random_model, model_output_size
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor

T = TypeVar("T")
Batches = Iterable[tuple[tuple[Tensor, ...], Tensor]]  # inputs of the model, labels
READ_AHEAD = 2  # batches that are read while the model computes
# Samples per forward pass: bounds the memory; changes results only by rounding.
EVALUATION_BATCH_SIZE = 500
# Tiles per row and column; minimum size of a tile and width of the gap between tiles, both in pixels.
SIDE, TILE, GAP = 8, 56, 4
MAX_SAVED_NUMBERS = 10_000_000  # of all outputs in predictions.npz: 40 MB


def load_published_model(
    run: Run, data: DataManifest, path: Path, device: str = "cpu"
) -> tuple[nn.Module, Preprocessor]:
    """Return a trained model in evaluation mode and the preprocessing of its inputs, both on the device.

    Raises UserError if the file does not contain the weights of this run's model, if the model was trained with other data,
    or if the code of the model has changed since the training.
    """
    folder = path.parent
    if RunPaths(folder).summary.exists():
        trained = FinishedRun(folder).recorded("data")
        if trained.get("fingerprint") != manifest_fingerprint(data.folder / MANIFEST_FILE):
            raise UserError(
                f"{data.folder}: not the data of the model in {folder}, which was trained with {trained['manifest']}; train "
                f"the model again, or use the data of the training"
            )
    refuse_changed_code(run, folder)
    dtype = parameter_dtype(run.train.precision)
    tensors = Preprocessor(normalized_as_trained(data, folder), run.data, device, dtype)
    # The seed has no effect, because all weights are loaded.
    module = build_random_model(run, tensors.shape, model_output_size(run, data), seed=0).to(dtype)
    try:
        module.load_state_dict(load_file(path))
    except (OSError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"{path}: the file does not contain the weights of the model {run.model.name}: {error}"
        ) from error
    return module.to(device).eval(), tensors


def normalized_as_trained(data: DataManifest, folder: Path) -> DataManifest:
    """Return the manifest with the moments by which the training in `folder` normalized its inputs.

    Without recorded moments, these are the moments of the whole training split.
    """
    if not RunPaths(folder).summary.exists():
        return data
    recorded = FinishedRun(folder).summary.get("data", {}).get("normalization")
    try:
        return data if recorded is None else with_moments(data, recorded)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{RunPaths(folder).summary}: data.normalization does not fit the inputs of {data.folder} ({error}); train the model again"
        ) from error


def outputs_of(module: nn.Module, tensors: Preprocessor, inputs: Sequence[Array]) -> Any:
    """Return the outputs for stored samples, (n, ...) arrays in the structure of the model's outputs.

    `inputs`: an array (n, *shape) of the stored type for each input; those of the parameters' type are normalized in place.
    """
    return _joined(list(output_batches(module, tensors, inputs)))


@torch.no_grad()
def output_batches(module: nn.Module, tensors: Preprocessor, inputs: Sequence[Array]) -> Iterator[Any]:
    """Yield the outputs for stored samples batch by batch, at least one batch; see `outputs_of`."""
    # Without samples, one empty batch shows the structure of the outputs.
    for start in range(0, len(inputs[0]), EVALUATION_BATCH_SIZE) or range(1):
        rows = tuple(array[start : start + EVALUATION_BATCH_SIZE] for array in inputs)
        yield module(*tensors(rows, np.zeros(len(rows[0])))[0])


def _joined(batches: Sequence[Any]) -> Any:
    """Concatenate equal structures of tensors to arrays."""
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(list(batches)).numpy()
    if isinstance(first, dict):
        return {name: _joined([batch[name] for batch in batches]) for name in first}
    return tuple(_joined(parts) for parts in zip(*batches, strict=True))


@torch.no_grad()
def evaluation_batches(
    module: nn.Module,
    split: Split,
    samples: Indices,
    tensors: Preprocessor,
    size: int = EVALUATION_BATCH_SIZE,
    ahead: int = 0,
) -> Generator[tuple[tuple[Tensor, ...], Tensor]]:
    """Set the module to evaluation mode and yield (inputs, labels) batch by batch; a thread reads `ahead` batches ahead."""
    module.eval()
    stored = (split.take(samples[start : start + size]) for start in range(0, len(samples), size))
    with closing(prefetched(stored, ahead) if ahead else stored) as batches:
        for batch in batches:
            yield tensors(*batch)


@torch.no_grad()
def evaluation_sums(module: nn.Module, batches: Batches, problem: Problem) -> Tensor:
    """Return the problem's sums over some batches, (sums,) of float64, of a model in evaluation mode."""
    total = torch.zeros(problem.sums_size, dtype=torch.float64)
    for inputs, labels in batches:
        sums = problem.measure(module, inputs, labels)
        total = total.to(sums.device) + sums
    return total


def evaluate_model(run: Run, manifest: Path, model: Path, output: Path) -> None:
    """Evaluate a saved model and write the number of samples, loss, metrics and confusion matrix as JSON.

    Loss and metrics of each sample are written beside it, to sample_metrics.npz, targets and outputs to predictions.npz.

    The samples are the test split; without one, the validation split; without either, the held-out samples of
    the training split, from the partition file next to the model. The device of the training is used, if this
    machine has it, otherwise the CPU.
    """
    data = DataManifest.load(manifest)
    module, tensors = load_published_model(run, data, model, evaluation_device(run.parallel))
    name, split, samples = evaluation_samples(data, RunPaths(model.parent).partition)
    result = test_result_of_run(run, module, tensors, split, samples, data.classes)
    paths = RunPaths(output.parent)
    predictions = {"samples": np.asarray(samples), **result.predictions} if result.predictions else {}
    written = {paths.sample_metrics: result.values, paths.predictions: predictions}
    for path, arrays in written.items():
        with atomic_write(path) as part:
            write_shard(part, "npz", arrays)
    described = {
        "model_sha256": file_sha256(model),
        "outputs": {path.name: file_sha256(path) for path in written},
        "classes": data.class_labels,
        "split": name,
        "samples": len(samples),
        "predictions": result.outputs_are,
    }
    report = with_checksum({**described, **result.report})
    with atomic_write(output) as part:
        part.write_text(json.dumps(report, indent=1))


def test_result_of_run(
    run: Run, module: nn.Module, tensors: Preprocessor, split: Split, samples: Indices, classes: int | None
) -> "TestResult":
    """Return the result of a run's model on samples of a split, in batches that fit into the memory."""
    problem = build_problem(run, classes)
    if isinstance(problem, SupervisedProblem):
        split = split.weighted(samples)

    def measure(size: int) -> TestResult:
        with closing(evaluation_batches(module, split, samples, tensors, size, READ_AHEAD)) as batches:
            return test_result(module, batches, problem, classes)

    return within_memory(measure)


def within_memory(measure: Callable[[int], T]) -> T:
    """Call `measure` with a number of samples per batch, halved while the GPU has too little memory; raise UserError at 0."""
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
    """Return the name, the split and the indices of the samples that evaluate a finished training."""
    for name in ("test", "validation"):
        if name in data.splits:
            split = Split(data, name)
            return name, split, np.arange(len(split))
    return "held back", Split(data, "train"), load_partition(partition)[0]


@dataclass(frozen=True)
class TestResult:
    """The result of an evaluation."""

    # loss, metrics and, for classes, `confusion` (true x predicted), unless the model predicted another class than the
    # classes of the data, or returned NaN
    report: dict[str, Any]
    # loss and metrics of each sample by name, (samples,) float32; empty if the problem has none
    values: dict[str, Array]
    # `outputs` (samples, k) float32, `targets` and, for classes, `predicted`, and `weights` with mean 1 of samples that
    # have them, as in predictions.npz; or empty
    predictions: dict[str, Array] = field(default_factory=dict)
    # `probability`, `score` or `value`; without predictions, why they are left out
    outputs_are: str = "left out: the problem has no table of outputs"


@torch.no_grad()
def test_result(module: nn.Module, batches: Batches, problem: Problem, classes: int | None) -> TestResult:
    """Return the result of a model on some samples."""
    if not isinstance(problem, SupervisedProblem):
        return TestResult(problem.means(evaluation_sums(module, batches, problem)), {})
    predicted = problem.predicted if classes is not None else None
    total = torch.zeros(problem.sums_size, dtype=torch.float64)
    # One place more than the classes of the data, for other predictions.
    confusion = np.zeros((classes or 0, (classes or 0) + 1), np.int64)
    values = [np.zeros((len(problem.sample_names), 0), np.float32)]
    saved, numbers, kind = defaultdict[str, list[Array]](list), 0, TestResult.outputs_are
    for inputs, batch_targets in batches:
        outputs = module(*inputs)
        penalty = regularization_loss(module)
        sums = problem.sums_of_outputs(outputs, batch_targets, penalty)
        total = total.to(sums.device) + sums
        values.append(problem.values_of_outputs(outputs, batch_targets, penalty).cpu().numpy())
        labels, weights = problem.unpacked(batch_targets)
        places = None if predicted is None else predicted(outputs).cpu().numpy()
        if problem.table is not None:
            kind, table = problem.table(outputs)
            numbers += table.numel()
            if numbers <= MAX_SAVED_NUMBERS or problem.set_metrics:
                saved["outputs"].append(table.numpy())
                targets = labels.cpu().numpy()
                saved["targets"].append(targets if places is not None else targets.reshape(len(targets), -1))
                saved["predicted"].extend(() if places is None else (places,))
                saved["weights"].extend(() if weights is None else (weights.cpu().numpy(),))
        if places is not None:
            # `confusion[...] += 1` would count a pair once per batch. NO_CLASS is the last place already.
            np.add.at(confusion, (labels.cpu().numpy(), np.minimum(places, confusion.shape[0])), 1)
    is_complete = predicted is not None and not confusion[:, -1].any()
    matrix = {"confusion": confusion[:, :-1].tolist()} if is_complete else {}
    of_samples = dict(zip(problem.sample_names, np.concatenate(values, axis=1), strict=True))
    arrays = {name: np.concatenate(parts) for name, parts in saved.items() if parts}
    of_set = {
        metric_column(name): set_metric(
            name, arrays["outputs"], arrays["targets"], arrays.get("predicted"), arrays.get("weights")
        )
        for name in problem.set_metrics
        if arrays
    }
    if numbers > MAX_SAVED_NUMBERS:
        arrays, kind = {}, f"left out: {numbers:,} numbers, more than {MAX_SAVED_NUMBERS:,}"
    return TestResult({**problem.means(total), **of_set, **matrix}, of_samples, arrays, kind)


@torch.no_grad()
def draw_gan_samples(module: Any, path: Path) -> None:
    """Write a PNG with SIDE x SIDE samples of fixed noise; write no file if the samples are not images.

    Volumes are summed along their depth. The color range is 0 to 1, extended to the smallest and largest value.
    """
    like = next(module.parameters())
    samples = module.eval().generator(fixed_noise(SIDE * SIDE, module.latent).to(like)).float().cpu()
    images = samples.sum(2) if samples.dim() == 5 else samples
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        return
    low, high = images.min().clamp(max=0), images.max().clamp(min=1)
    from PIL import Image

    pixels = ((images - low) * 255 / (high - low)).round().byte()
    larger = -(-TILE // max(pixels.shape[2:]))
    tiles = pixels.repeat_interleave(larger, 2).repeat_interleave(larger, 3)
    tiles = torch.nn.functional.pad(tiles, (0, GAP, 0, GAP), value=255)
    _, channels, height, width = tiles.shape
    # Axes in the order (row, height, column, width, channels), so that the next reshape joins the tiles.
    grid = tiles.reshape(SIDE, SIDE, channels, height, width).permute(0, 3, 1, 4, 2)
    picture = grid.reshape(SIDE * height, SIDE * width, channels)[:-GAP, :-GAP]
    with atomic_write(path) as part:
        Image.fromarray(picture.squeeze(2).numpy()).save(part, format="PNG", optimize=True)
