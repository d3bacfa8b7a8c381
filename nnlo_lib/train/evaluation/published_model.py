"""A published model with its data's preprocessing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition.training_moments import with_moments
from nnlo_lib.data.readers import Array
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest, manifest_fingerprint
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import refuse_changed_code
from nnlo_lib.train.output_size import model_output_size
from nnlo_lib.train.replica.model_init import build_random_model
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor

# Samples per forward pass: bounds the memory; changes results only by rounding.
EVALUATION_BATCH_SIZE = 500


def load_published_model(
    run: Run, data: DataManifest, path: Path, device: str = "cpu"
) -> tuple[nn.Module, Preprocessor]:
    """Return a trained model in evaluation mode and the preprocessing of its inputs, both on the device.

    Args:
        run: configuration with which the model was trained.
        data: manifest of the data store.
        path: safetensors file with the weights.
        device: `cpu` or `cuda:N`.

    Raises:
        UserError: if the file does not contain the weights of this run's model, if the model was trained with
            other data, or if the code of the model has changed since the training.
    """
    _refuse_other_data(data, path.parent)
    refuse_changed_code(run, path.parent)
    dtype = parameter_dtype(run.train.precision)
    tensors = Preprocessor(normalized_as_trained(data, path.parent), run.data, device, dtype)
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


def _refuse_other_data(data: DataManifest, folder: Path) -> None:
    """Raise UserError if the summary in `folder` says that the model was trained with other data."""
    if not RunPaths(folder).summary.exists():
        return
    trained = FinishedRun(folder).recorded("data")
    present = manifest_fingerprint(data.folder / MANIFEST_FILE)
    if trained.get("fingerprint") != present:
        raise UserError(
            f"{data.folder}: not the data of the model in {folder}, which was trained with {trained['manifest']}; train "
            f"the model again, or use the data of the training"
        )


@torch.no_grad()
def outputs_of(module: nn.Module, tensors: Preprocessor, inputs: Sequence[Array]) -> Any:
    """Return the outputs for stored samples, (n, ...) arrays in the structure of the model's outputs.

    Args:
        module: model in evaluation mode, on the CPU.
        tensors: preprocessor of the model's inputs.
        inputs: an array (n, *shape) of the stored type for each input; arrays of the parameters' type are
            normalized in place.
    """
    # Without samples, one empty batch shows the structure of the outputs.
    starts = range(0, len(inputs[0]), EVALUATION_BATCH_SIZE) or range(1)
    batches = []
    for start in starts:
        rows = tuple(array[start : start + EVALUATION_BATCH_SIZE] for array in inputs)
        batches.append(module(*tensors(rows, np.zeros(len(rows[0])))[0]))
    return _joined(batches)


def _joined(batches: Sequence[Any]) -> Any:
    """Concatenate equal structures of tensors to arrays."""
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(list(batches)).numpy()
    if isinstance(first, dict):
        return {name: _joined([batch[name] for batch in batches]) for name in first}
    return tuple(_joined(parts) for parts in zip(*batches, strict=True))
