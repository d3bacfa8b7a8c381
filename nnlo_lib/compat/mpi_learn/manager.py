"""mpi_learn's `MPIManager`: it trains the script's model with all ranks, with callbacks and histories of Keras."""

import inspect
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from nnlo_lib.comm.mpi.communicator import MPICommunicator
from nnlo_lib.compat.mpi_learn.builders import Algo, Data, ModelBuilder
from nnlo_lib.compat.mpi_learn.store import DATASET_NAME, make_store
from nnlo_lib.config import Run, merge_settings
from nnlo_lib.config.data import DataConfig as DataBlock
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import wait_until_read
from nnlo_lib.core.text_format import timestamp
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.experiment.checks import validation_mistakes
from nnlo_lib.models.factory import module_from_function
from nnlo_lib.train.callback import Callback, Event
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.freshness import status
from nnlo_lib.train.observers import attach_observers
from nnlo_lib.train.publish import publish_training
from nnlo_lib.train.rank import reduction_mode
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag, tune_malloc_and_timers
from nnlo_lib.train.replica.model_build import activation_in_loss
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.task import Task
from nnlo_lib.train.trainer import Trainer

KerasHistory = dict[str, list[float]]
COLUMNS = {"train_loss": "loss", "train_accuracy": "acc", "val_loss": "val_loss", "val_accuracy": "val_acc"}
MASTER_HISTORY_KEY = "0:0:-"  # key of the master in mpi_learn's histories


class MPIManager:
    """Trains a model with all ranks of `comm`.

    Rank 0 starts the training when the script calls `train`. All other ranks start in the constructor, which
    returns on these ranks at the end of the training.

    Args:
        val_list: files with validation samples; if empty, 10 % of the training samples are used.
        num_processes: processes of a worker, which share its gradient.
        synchronous: True if the master waits for all workers.
        callbacks: Keras callbacks for rank 0.
        early_stopping: text such as "val_loss,~<,4": metric, direction (~: smoothed), patience.
        target_metric: text such as "val_acc,>,0.97", which ends the training.
        monitor: True to write monitor.csv to `folder`: CPUs, memory and GPUs of all ranks.
        verbose: accepted without effect; the log has one level.
        thread_validation: accepted without effect, because the ranks share the validation samples.
        checkpoint: folder of checkpoints and results, if `folder` does not name it.
        checkpoint_interval: epochs between two checkpoints, if `checkpoint` is set.
        custom_objects: Keras classes and functions of the user, by name, for `build_model`.
        seed: seed of the initial weights and the order of the samples.
        folder: folder of results and checkpoints, from which a restarted script resumes. If it is None, results
            and checkpoints are deleted at the end.
        settings: keys of an experiment (docs/reference/experiment.md) that override the other arguments.
    """

    def __init__(
        self,
        comm: Any,
        data: Data,
        algo: Algo,
        model_builder: ModelBuilder,
        num_epochs: int,
        train_list: Sequence[str] = (),
        val_list: Sequence[str] = (),
        num_masters: int = 1,
        *,
        num_processes: int = 1,
        synchronous: bool = False,
        callbacks: Sequence[Any] = (),
        early_stopping: str | None = None,
        target_metric: str | None = None,
        monitor: bool = False,
        verbose: bool = False,
        thread_validation: bool = False,
        checkpoint: str | None = None,
        checkpoint_interval: int = 5,
        custom_objects: dict[str, Any] | None = None,
        seed: int = 0,
        folder: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.comm, self.data, self.algo, self.model_builder = comm, data, algo, model_builder
        self.epochs, self.lists, self.callbacks = num_epochs, (list(train_list), list(val_list)), callbacks
        self._num_masters, self._num_processes, self._synchronous = num_masters, num_processes, synchronous
        self._early_stopping, self._target_metric, self._monitor = early_stopping, target_metric, monitor
        self._checkpoint, self._checkpoint_interval = checkpoint, checkpoint_interval
        self._custom_objects, self._seed, self._settings = custom_objects, seed, settings or {}
        self._folder = folder or checkpoint
        self._histories: dict[str, KerasHistory] | None = None
        self.model: Any = None
        self.process = self  # mpi_learn's scripts call manager.process.train()
        # Scripts of mpi_learn call train only on rank 0; the other ranks must join in its collective
        # operations.
        if comm.Get_rank():
            self.train()

    def train(self) -> dict[str, KerasHistory]:
        """Train at most once and return the histories; an error aborts all ranks.

        A script may call this method on all ranks or only on rank 0.
        """
        if self._histories is None:
            try:
                self._histories = self._run_training()
            except BaseException as error:
                abort_ranks(self.comm, error)
        return self._histories or {}

    def get_histories(self, comm: Any = None) -> dict[str, KerasHistory]:
        """Return the histories of the training, or an empty dictionary before its end."""
        return self._histories or {}

    def record_details(self, json_name: str, meta: dict[str, Any] | None = None) -> None:
        """On rank 0, write the training time and histories to a JSON file in mpi_learn's format."""
        if self.comm.Get_rank() == 0:
            content = {"train_time": self.train_time, "history": self._histories, **(meta or {})}
            Path(json_name).write_text(json.dumps(content, indent=1))

    def free_comms(self) -> None:
        """Do nothing, because MPI is finalized automatically."""

    def _arguments_as_settings(self) -> dict[str, Any]:
        """Return the settings that follow from `algo` and the arguments; log the options without effect."""
        if self._monitor and not self._folder:
            raise UserError(
                "MPIManager: monitor: the measurements are files of the results, which are deleted at the end without `folder`; "
                'set folder="results/mine", or monitor=False'
            )
        ranks, train = (
            self.comm.Get_size(),
            {"early_stopping": self._early_stopping, "target": self._target_metric},
        )
        if self.comm.Get_rank() == 0:
            for remark in self.algo.remarks(ranks):
                get_logger(__name__).warning(remark)
        settings: dict[str, Any] = {
            "train": {key: text for key, text in train.items() if text},
            "parallel": {"processes_per_worker": self._num_processes},
        }
        if self._monitor:
            settings["observe"] = {"monitor": 0.5}  # in seconds, as mpi_learn's monitor
        if self._checkpoint:
            settings["checkpoint"] = {"every": f"{self._checkpoint_interval} epochs"}
        algorithm = self.algo.experiment_settings(
            ranks, self._num_masters, self._synchronous, self._num_processes
        )
        return dict(merge_settings(settings, algorithm))

    def _run_training(self) -> dict[str, KerasHistory]:
        first = self.comm.Get_rank() == 0
        arguments = self._arguments_as_settings()  # before a file is written, because it refuses some
        folder = Path(
            self.comm.bcast(
                # Not in /tmp: all ranks read the store from this folder, also ranks of other nodes.
                (self._folder or tempfile.mkdtemp(prefix=".mpi_learn-", dir=".")) if first else None
            )
        )
        try:
            # The broadcast also makes the other ranks wait until rank 0 has written the store.
            block = self.comm.bcast(self._checked_store(arguments, folder) if first else None)
            task = self._task(arguments, DataBlock.model_validate_json(block[0]), block[1], folder)
            return self._train_task(task)
        finally:
            if first and not self._folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _checked_store(self, arguments: dict[str, Any], folder: Path) -> tuple[str, int]:
        """Write the store, check the settings, and return the `data` section as JSON and the batch size, for all ranks.

        The other ranks wait, so that rank 0 can remove its files.
        """
        one_hot = self.algo.loss not in ("mse", "mae", "huber")
        block, batch_size = (
            make_store(self.data, *self.lists, one_hot, folder / "data"),
            self.data.batch_size or 100,
        )
        self._task(arguments, block, batch_size, folder)
        return block.model_dump_json(), batch_size

    def _task(self, arguments: dict[str, Any], data: DataBlock, batch_size: int, folder: Path) -> Task:
        manifest, builder = folder / "data/store/manifest.json", type(self.model_builder)
        settings = {
            "data": data.model_dump(mode="json"),
            # The module is passed to the rank directly; this name only records where it was defined.
            "model": {"name": f"{inspect.getsourcefile(builder)}:{builder.__name__}"},
            "problem": {"name": "classification" if DataManifest.load(manifest).classes else "regression"},
            "loss": self.algo.loss,
            "parallel": {"ranks": self.comm.Get_size(), "transport": "mpi"},
            "train": {"epochs": self.epochs, "batch_size": batch_size},
        }
        run = checked_run(merge_settings(merge_settings(settings, arguments), self._settings))
        return Task(DATASET_NAME, "script", run, self._seed, None, 1, manifest, folder)

    def _train_task(self, task: Task) -> dict[str, KerasHistory]:
        first = self.comm.Get_rank() == 0
        needed = self.comm.bcast(first and status(task).refuse_longer().kind != "finished")
        tune_malloc_and_timers()
        torch.set_num_threads(task.run.parallel.threads_per_rank)
        task.state.mkdir(parents=True, exist_ok=True)
        started, began = timestamp(), time.perf_counter()
        comm = MPICommunicator(self.comm, reduction_mode(task.run), task.run.parallel.peer_timeout)
        shape = Preprocessor(DataManifest.load(task.manifest), task.run.data, "cpu").shape
        with keras_objects(self._custom_objects):
            module = module_from_function(
                self.model_builder.build_model, shape, self._seed, activation_in_loss(task.run)
            )
        # The model that the script has built: the module itself, or the Keras model inside, which lacks its final
        # softmax or sigmoid if the loss applies this activation.
        model = getattr(module, "_model", (module,))[0]
        trainer = Trainer(RankContext(task, comm, module=module), StopFlag())
        # Scripts may initialize the ranks differently. Before `run`, which loads the checkpoint of an interrupted training.
        replica = trainer.context.replica
        comm.broadcast(replica.theta)
        if replica.buffers.numel():
            comm.broadcast(replica.buffers)
        if self.callbacks and first:
            trainer.callbacks.append(KerasCallbacks(trainer, model, list(self.callbacks)))
        attach_observers(trainer)
        with closing(trainer):
            done = trainer.run()
        self.model, self.train_time = model, time.perf_counter() - began
        # A temporary folder is deleted after the training.
        # The results of a finished training stay as they are if the script is repeated.
        if done and self._folder and needed:
            publish_training(trainer, started, timestamp())
        return {MASTER_HISTORY_KEY: self.comm.bcast(keras_history(trainer.recorder) if first else None)}


def keras_objects(objects: dict[str, Any] | None) -> AbstractContextManager[Any]:
    """Return a context in which Keras finds the classes and functions of the user by their names."""
    if not objects:
        return nullcontext()
    import keras

    scope: AbstractContextManager[Any] = keras.saving.custom_object_scope(objects)
    return scope


class KerasCallbacks(Callback):
    """Adapter of Keras callbacks on rank 0; a callback that sets `model.stop_training` stops the training."""

    def __init__(self, trainer: Trainer, model: Any, callbacks: Sequence[Any]) -> None:
        self._trainer, self._model, self._callbacks = trainer, model, callbacks

    def begin(self, part: str) -> None:
        if part == "run":
            self._notify("set_model", self._model)
            self._notify("on_train_begin")

    def end(self, part: str) -> None:
        if part == "run":
            self._notify("on_train_end")

    def on(self, event: Event) -> None:
        if event != "epoch":
            return
        logs = {name: values[-1] for name, values in keras_history(self._trainer.recorder).items() if values}
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


def checked_run(settings: dict[str, Any]) -> Run:
    """Return the run with these settings. Raises UserError with the key of the first mistake."""
    for key, sentence in validation_mistakes(Run, settings):
        raise UserError(f"MPIManager: {'.'.join(map(str, key))}: {sentence}")
    return Run.model_validate(settings)


def abort_ranks(comm: Any, error: BaseException) -> None:
    """Log the message of a UserError, or print any other error with its traceback, and end all ranks of mpi4py's `comm`.

    Other ranks may wait for this rank in a collective operation, which only Abort ends.
    """
    if isinstance(error, UserError):
        get_logger(__name__).error(error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    wait_until_read(sys.stderr)  # after Abort, mpiexec may drop output that it has not read
    comm.Abort(2 if isinstance(error, UserError) else 1)
