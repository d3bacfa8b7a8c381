"""Loading and evaluation of a trained model without training: a finished run, or a weights file with an experiment.

The metrics are of the data of the training or of other data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.config.base import default
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.model import WEIGHT_SUFFIXES
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.readers.base import Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_location import locate_store
from nnlo_lib.experiment.load import experiment_from_settings, parse_override
from nnlo_lib.state.finished_run import code_files, trusted
from nnlo_lib.train.evaluation.evaluate import (
    evaluation_samples,
    load_published_model,
    normalized_as_trained,
    test_result_of_run,
)
from nnlo_lib.train.evaluation.other_data import preprocessor_of_other_data
from nnlo_lib.train.replica.device import evaluation_device
from nnlo_lib.train.replica.model_build import build_initial_model, model_output_size
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.task import prepare_store
from nnlo_lib.workflow.trained_run import TrainedRun, load_run

logger = get_logger(__name__)

KEYS_OF_TRAINED_MODEL = ("normalize", "crop")  # of `data`; its other keys may differ from the training
EVALUATED_SPLITS = ("test", "validation")  # in this order, if no split is named


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate."""

    target: Path  # folder of a finished run, or a weights file
    described: Run | None = None  # of an experiment file, with overrides applied
    changes: Sequence[str] = ()  # `data.key=value` of the finished run's data, if there is no experiment file
    trust: bool = False  # allow that files that the run names run their code
    device: str | None = None  # `cpu` or `cuda:N`; None: the device of the training, if this machine has it


@dataclass(frozen=True)
class EvaluatedModel:
    """A model in evaluation mode, and the data to evaluate it with."""

    run: Run
    weights: Path
    module: nn.Module
    tensors: Preprocessor
    data: DataManifest
    trained: DataManifest  # equal to `data` for a weights file, whose training is unknown
    partition: Path | None = None  # file of the training, if the data are its own

    @property
    def classes(self) -> int | None:
        """Number of classes of the model; None if the labels are no classes."""
        return self.trained.classes

    @property
    def class_labels(self) -> list[str]:
        """Names of the classes of the model, or their numbers if they have no names."""
        return self.trained.class_labels


def evaluate_target(request: EvaluationRequest, wanted_split: str | None = None) -> dict[str, Any]:
    """Return weights, data, samples, loss, metrics and confusion matrix of a model, as evaluation.json has them.

    Without `wanted_split`, the split is that of evaluation.json for the data of the training; for other data, the test
    split or the validation split.

    Raises UserError if the target is no model, or if the data do not fit it.
    """
    model = load_evaluated_model(request)
    name, split, samples = _samples(model, wanted_split)
    result = test_result_of_run(model.run, model.module, model.tensors, split, samples, model.classes)
    return {
        "model": str(model.weights),
        "model_sha256": file_sha256(model.weights),
        "data": str(model.data.folder),
        "classes": model.class_labels,
        "split": name,
        "samples": len(samples),
        **result.report,
    }


def evaluation_line(target: Path, report: dict[str, Any]) -> str:
    """Return samples, loss and metrics of a report as one line."""
    found = ((name, value) for name, value in report.items() if isinstance(value, float))
    figures = "  ".join(f"{name} {value:.6g}" for name, value in found)
    return f"{target}: {report['split']} ({plural(report['samples'], 'sample')}): {figures}"


def refuse_published_output(output: Path | None) -> None:
    """Raise UserError if a file to write is a folder, or exists among the results of a training."""
    if output is None:
        return
    if output.is_dir():
        raise UserError(f"--output: {output} is a folder; name a file")
    if output.exists() and RunPaths(output.parent).summary.exists():
        raise UserError(f"--output: {output} exists in the folder of a training; name a new file")


def _samples(model: EvaluatedModel, wanted: str | None) -> tuple[str, Split, Indices]:
    """Return the name, the split and the indices of the samples to evaluate."""
    data = model.data
    if wanted is None and model.partition is not None:
        return evaluation_samples(data, model.partition)
    name = wanted or next((each for each in EVALUATED_SPLITS if each in data.splits), "")
    if name not in data.splits:
        reason = f"no split '{name}'" if name else "neither a test nor a validation split"
        raise UserError(f"--split: {data.folder} has {reason}; choose one of: {', '.join(data.splits)}")
    split = Split(data, name)
    return name, split, np.arange(len(split), dtype=np.int64)


def load_evaluated_model(request: EvaluationRequest) -> EvaluatedModel:
    """Return the model of a request with its data, which are fetched and converted if necessary.

    Raises UserError if the target is no model, or if the data do not fit it.
    """
    folder = _run_folder(request)
    return _of_weights(request) if folder is None else _of_finished_run(request, TrainedRun(folder))


def _run_folder(request: EvaluationRequest) -> Path | None:
    """Return the folder of the finished run that the request names; None for a weights file of an experiment."""
    target = request.target
    if not target.exists():
        raise UserError(f"{target}: not found; name the folder of a finished run, or a weights file")
    if target.is_dir():
        return load_run(target).folder
    if request.described is not None:
        return None
    paths = RunPaths(target.parent)
    if target == paths.model and paths.summary.exists():
        return target.parent
    raise UserError(f"{target}: a weights file does not name its model; add --experiment FILE with `model`")


def _of_finished_run(request: EvaluationRequest, finished: TrainedRun) -> EvaluatedModel:
    if (code := code_files(finished)) and not request.trust:
        raise UserError(
            f"{finished.folder}: the model is not loaded, because that runs {', '.join(code)}; add --trust if you trust the author "
            "of these results and files"
        )
    run = trusted(finished.config) if request.trust else finished.config
    own, weights = finished.data, finished.paths.model
    device = request.device or evaluation_device(run.parallel)
    other = _other_data(request, run)
    module, tensors = load_published_model(run, own, weights, device)
    if other is None:
        return EvaluatedModel(run, weights, module, tensors, own, own, finished.paths.partition)
    data = _converted(other)
    tensors = preprocessor_of_other_data(run, normalized_as_trained(own, finished.folder), data, device)
    if request.described is not None:
        logger.info(
            f"{request.target}: of the experiment file, only `data` is used; normalize and crop are those of the training"
        )
    return EvaluatedModel(run, weights, module, tensors, data, own)


def _other_data(request: EvaluationRequest, run: Run) -> DataConfig | None:
    """Return the data that the request names instead of the data of the training; None if it names no data."""
    if request.described is not None:
        data = request.described.data
        # The settings of a run do not say which keys were written.
        written = {key for key in KEYS_OF_TRAINED_MODEL if getattr(data, key) != default(DataConfig, key)}
    elif request.changes:
        for change in request.changes:
            if parse_override(change)[0][0] != "data":
                raise UserError(f"--set {change}: the training fixes all keys except `data`; remove it")
        settings = {"data": run.data.model_dump(mode="json", exclude_unset=True)}
        data = experiment_from_settings(settings, request.changes).data
        written = data.model_fields_set
    else:
        return None
    for key in KEYS_OF_TRAINED_MODEL:
        if key in written and getattr(data, key) != getattr(run.data, key):
            raise UserError(
                f"data.{key}: {getattr(data, key)}, but the model was trained with {getattr(run.data, key)}; remove the "
                "key, because the evaluation prepares samples as the training did"
            )
    return data


def _of_weights(request: EvaluationRequest) -> EvaluatedModel:
    run, path = request.described, request.target
    assert run is not None, "a weights file without an experiment was refused"
    if path.suffix not in WEIGHT_SUFFIXES:
        raise UserError(f"{path}: unknown suffix of a weights file; use one of {', '.join(WEIGHT_SUFFIXES)}")
    initial = {"weights": str(path), "weights_except": ()}
    run = run.model_copy(update={"model": run.model.model_copy(update=initial)})
    run = trusted(run) if request.trust else run
    data = _converted(run.data)
    if run.data.normalize == "standard":
        logger.info(
            f"data.normalize: standard: mean and deviation of the whole training split of {data.folder}; set `mean` and "
            "`std` if the weights were trained with other values"
        )
    device, dtype = evaluation_device(run.parallel), parameter_dtype(run.train.precision)
    tensors = Preprocessor(data, run.data, device, dtype)
    # The seed has no effect, because all weights are loaded.
    module = build_initial_model(run, tensors.shape, model_output_size(run, data), seed=0)
    return EvaluatedModel(run, path, module.to(dtype).to(device).eval(), tensors, data, data)


def _converted(data: DataConfig) -> DataManifest:
    return DataManifest.load(prepare_store(locate_store(data.store_settings)))
