"""A finished run: its summary, history, model, and predictions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest

if TYPE_CHECKING:
    from torch import nn

    from nnlo_lib.data.store.manifest import DataManifest

Array = npt.NDArray[Any]


class TrainedRun(FinishedRun):
    """A run that was trained and published in `folder`.

    Besides `model` and `predict`, it has the properties `summary` and `evaluation` (dictionaries), `history` (a
    DataFrame, one row per epoch) and `config` (the settings). They raise UserError if their file is missing or damaged.

    Example:
        run = nnlo_lib.load_run("results/quickstart/allreduce/seed-1")
        run.history[["epoch", "val_loss"]]
        classes = run.predict(images).argmax(1)
    """

    def model(self) -> "nn.Module":
        """Return the trained model in evaluation mode, on the CPU.

        Raises UserError if the files of the run do not hold the model, or its data store is not found.
        """
        # Imports torch, which users of the summary and the history do not need.
        from nnlo_lib.train.evaluation.published_model import load_published_model

        return load_published_model(self.config, self._data, self.paths.model)[0]

    def predict(self, *inputs: npt.ArrayLike) -> Any:
        """Return the model's outputs for samples, after the same normalization as in training.

        Args:
            inputs: one array (n, *shape) for each input of the model, in the units of the data store: images
                as bytes if they are stored so.

        Returns:
            Array (n, outputs); for a model with several outputs, the same structure with arrays.

        Raises:
            UserError: if an array has another shape or type than the samples of the data store, or the run's
                files are incomplete.
        """
        from nnlo_lib.train.evaluation.published_model import load_published_model, outputs_of

        samples = _checked(inputs, self._data)
        return outputs_of(*load_published_model(self.config, self._data, self.paths.model), samples)

    @property
    def _data(self) -> "DataManifest":
        from nnlo_lib.data.store.manifest import DataManifest

        recorded = self.summary.get("data", {}).get("manifest", "")
        path = find_data_manifest(self.folder, recorded) if recorded else None
        if path is None:
            raise UserError(
                f"{self.folder}: the data store {recorded} is not found; convert the data set again"
            )
        return DataManifest.load(path)


def load_run(folder: str | Path) -> TrainedRun:
    """Return the finished run in `folder`, which contains summary.json. Raises UserError if there is none."""
    run = TrainedRun(Path(folder))
    run.summary  # noqa: B018 - read now, so that a wrong folder is reported here
    return run


def _checked(inputs: Sequence[npt.ArrayLike], data: "DataManifest") -> tuple[Array, ...]:
    """Return the inputs as arrays of the stored types."""
    if len(inputs) != len(data.inputs):
        names = ", ".join(column.name for column in data.inputs)
        raise UserError(f"predict: {len(inputs)} arrays given, but the model has the inputs {names}")
    arrays = []
    for given, column in zip(map(np.asarray, inputs), data.inputs, strict=True):
        # `same_kind` accepts float64 for float32, but refuses floats for bytes: images that are already
        # scaled to 0..1 would become zeros.
        if given.shape[1:] != column.shape or not np.can_cast(given.dtype, column.dtype, "same_kind"):
            raise UserError(
                f"predict: {column.name} is {given.dtype} {given.shape}; expected {column.dtype} "
                f"{('n', *column.shape)}, as in the data store".replace("'", "")
            )
        arrays.append(given.astype(column.dtype))
    return tuple(arrays)
