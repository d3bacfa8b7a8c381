"""Keras callbacks and histories for a network built by the user's script."""

import sys
from collections.abc import Sequence
from typing import Any

from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.experiment.validation_messages import validation_mistakes
from nnlo_lib.train.callback import Callback
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.trainer import Trainer

KerasHistory = dict[str, list[float]]
COLUMNS = {"train_loss": "loss", "train_accuracy": "acc", "val_loss": "val_loss", "val_accuracy": "val_acc"}


class KerasCallbacks(Callback):
    """Adapter of Keras callbacks on rank 0; a callback that sets `model.stop_training` stops the training."""

    def __init__(self, trainer: Trainer, model: Any, callbacks: Sequence[Any]) -> None:
        self._trainer, self._model, self._callbacks = trainer, model, callbacks

    def on_run_begin(self) -> None:
        for callback in self._callbacks:
            if hasattr(callback, "set_model"):
                callback.set_model(self._model)
        self._notify("on_train_begin")

    def on_run_end(self) -> None:
        self._notify("on_train_end")

    def on_epoch_end(self) -> None:
        history = keras_history(self._trainer.recorder)
        logs = {name: values[-1] for name, values in history.items() if values}
        # Keras 3 calls the metric accuracy, mpi_learn acc; callbacks may read either name.
        accuracies = {name.replace("acc", "accuracy"): value for name, value in logs.items()}
        # Keras numbers epochs from 0; the position counts finished epochs.
        self._notify("on_epoch_end", self._trainer.position.epoch - 1, logs | accuracies)
        if getattr(self._model, "stop_training", False):
            self._trainer.stop.signal = "stop_training"

    def _notify(self, event: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event, lambda *_: None)(*arguments)


def keras_history(recorder: Recorder) -> KerasHistory:
    """Return the metrics by Keras's names, each a list with one value per epoch."""
    rows = recorder.history.rows
    return {name: [row[column] for row in rows if column in row] for column, name in COLUMNS.items()}


def model_of_script(module: nn.Module) -> Any:
    """Return the model built by the script: `module` itself, or the Keras model inside `module`.

    The Keras model lacks its final softmax or sigmoid if the loss applies this activation.
    """
    return getattr(module, "_model", (module,))[0]


def share_weights(trainer: Trainer) -> None:
    """Copy rank 0's weights and buffers to all ranks, because scripts may initialize them differently."""
    comm, replica = trainer.context.comm, trainer.context.replica
    comm.broadcast(replica.theta)
    if replica.buffers.numel():
        comm.broadcast(replica.buffers)


def checked_run(settings: dict[str, Any]) -> Run:
    """Return the run with these settings. Raises UserError with the key of the first mistake."""
    for key, sentence in validation_mistakes(Run, settings):
        raise UserError(f"MPIManager: {'.'.join(map(str, key))}: {sentence}")
    return Run.model_validate(settings)


def report_error(error: BaseException) -> None:
    """Log only the message of a UserError; print any other error with its traceback."""
    if isinstance(error, UserError):
        get_logger(__name__).error(error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
