"""A training of a network that the user's script has built, with Keras's callbacks."""

import sys
from collections.abc import Sequence
from typing import Any

from torch import nn

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.task import Task
from nnlo_lib.train.training import Training

History = dict[str, list[float]]
COLUMNS = {"train_loss": "loss", "train_accuracy": "acc", "val_loss": "val_loss", "val_accuracy": "val_acc"}


class ScriptTraining(Training):
    """Train `module`; rank 0 tells the callbacks, which may set `model.stop_training`."""

    def __init__(
        self, task: Task, comm: Communicator, stop: StopFlag, module: nn.Module, callbacks: Sequence[Any]
    ) -> None:
        self._module, self._callbacks = module, list(callbacks) if comm.rank == 0 else []
        super().__init__(task, comm, stop)
        comm.broadcast(self.replica.theta)
        if self.replica.buffers.numel():
            comm.broadcast(self.replica.buffers)

    @property
    def model(self) -> Any:
        """The model as the script has built it."""
        return getattr(self._module, "_model", (self._module,))[0]

    def run(self) -> bool:
        """Train, and tell the callbacks of beginning and end."""
        for callback in self._callbacks:
            if hasattr(callback, "set_model"):
                callback.set_model(self.model)
        self._tell("on_train_begin")
        done = super().run()
        self._tell("on_train_end")
        return done

    def history(self) -> History:
        """Return what was measured, a list with a value for each epoch, by Keras's names."""
        rows = self.books.history.rows
        return {theirs: [row[ours] for row in rows if ours in row] for ours, theirs in COLUMNS.items()}

    def _network(self) -> nn.Module:
        return self.precision.prepare(self._module)

    def _end_epoch(self, cut: bool = False) -> None:
        super()._end_epoch(cut)
        logs = {name: values[-1] for name, values in self.history().items() if values and self._callbacks}
        accuracies = {
            name.replace("acc", "accuracy"): value for name, value in logs.items()
        }  # as Keras says today
        self._tell("on_epoch_end", self.epoch - 1, logs | accuracies)
        if self._callbacks and getattr(self.model, "stop_training", False):
            self.stop.signal = "stop_training"

    def _tell(self, event: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event, lambda *_: None)(*arguments)


def complain(error: BaseException) -> None:
    """Print a sentence if it is the user's mistake; else let Python print where it happened."""
    from nnlo_lib.errors import UserError

    if isinstance(error, UserError):
        print(f"nnlo: error: {error}", file=sys.stderr, flush=True)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
