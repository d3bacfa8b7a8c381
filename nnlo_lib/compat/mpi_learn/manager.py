"""mpi_learn's `MPIManager`: it trains the script's model with all ranks."""

import inspect
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from nnlo_lib.comm.mpi.communicator import MPICommunicator
from nnlo_lib.compat.mpi_learn.algo import Algo
from nnlo_lib.compat.mpi_learn.data import Data
from nnlo_lib.compat.mpi_learn.manager_options import ManagerOptions
from nnlo_lib.compat.mpi_learn.model import ModelBuilder
from nnlo_lib.compat.mpi_learn.store import DATASET_NAME, make_store
from nnlo_lib.compat.mpi_learn.training import (
    KerasCallbacks,
    KerasHistory,
    checked_run,
    keras_history,
    model_of_script,
    report_error,
    share_weights,
)
from nnlo_lib.config import merge_settings
from nnlo_lib.config.data import DataConfig as DataBlock
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.pipe import wait_until_read
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.models.factory import module_from_function
from nnlo_lib.train.freshness import status
from nnlo_lib.train.observe.attach import attach_observers
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.process_tuning import tune_malloc_and_timers
from nnlo_lib.train.publish import publish_training
from nnlo_lib.train.rank import reduction_mode
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.replica.model_init import activation_in_loss
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.task import Task
from nnlo_lib.train.trainer import Trainer

MASTER_HISTORY_KEY = "0:0:-"  # key of the master in mpi_learn's histories


class MPIManager:
    """Trains a model with all ranks of `comm`.

    Rank 0 starts the training when the script calls `train`. All other ranks start in the constructor, which
    returns on these ranks at the end of the training.

    Args:
        comm: mpi4py communicator.
        data: source of the samples.
        algo: optimizer, loss and algorithm.
        model_builder: builds the network on each rank.
        num_epochs: number of epochs.
        train_list: files with training samples.
        val_list: files with validation samples; if empty, 10 % of the training samples are used.
        num_masters: number of masters.
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
        self._options = ManagerOptions(
            num_processes, early_stopping, target_metric, monitor, checkpoint, checkpoint_interval, custom_objects, folder
        )  # fmt: skip
        self._num_masters, self._synchronous = num_masters, synchronous
        self._seed, self._folder, self._settings = seed, self._options.folder, settings or {}
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
                # The other ranks may wait for this rank in a collective operation, which only Abort ends.
                report_error(error)
                wait_until_read(sys.stderr)  # after Abort, mpiexec may drop output that it has not read
                self.comm.Abort(2 if isinstance(error, UserError) else 1)
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
        """Return the settings that follow from `algo` and the manager's options; log the options without effect."""
        ranks, processes = self.comm.Get_size(), self._options.num_processes
        if self.comm.Get_rank() == 0:
            for remark in self.algo.remarks(ranks):
                get_logger(__name__).warning(remark)
        algorithm = self.algo.experiment_settings(ranks, self._num_masters, self._synchronous, processes)
        return dict(merge_settings(self._options.experiment_settings(), algorithm))

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
        """Write the store and check the settings; the other ranks wait, so that rank 0 can remove its files."""
        block, batch_size = self._store(folder / "data")
        self._task(arguments, DataBlock.model_validate_json(block), batch_size, folder)
        return block, batch_size

    def _store(self, folder: Path) -> tuple[str, int]:
        """Write the store; return its `data` section as JSON, and the batch size, for all ranks."""
        one_hot = self.algo.loss not in ("mse", "mae", "huber")
        block = make_store(self.data, *self.lists, one_hot, folder)
        return block.model_dump_json(), self.data.batch_size or 100

    def _task(self, arguments: dict[str, Any], data: DataBlock, batch_size: int, folder: Path) -> Task:
        manifest = folder / "data/store/manifest.json"
        problem = "classification" if DataManifest.load(manifest).classes else "regression"
        builder = type(self.model_builder)
        settings = {
            "data": data.model_dump(mode="json"),
            # The module is passed to the rank directly; this name only records where it was defined.
            "model": {"name": f"{inspect.getsourcefile(builder)}:{builder.__name__}"},
            "problem": {"name": problem},
            "loss": self.algo.loss,
            "parallel": {"ranks": self.comm.Get_size(), "transport": "mpi"},
            "train": {"epochs": self.epochs, "batch_size": batch_size},
        }
        run = checked_run(merge_settings(merge_settings(settings, arguments), self._settings))
        return Task(DATASET_NAME, "script", run, self._seed, None, 1, manifest, folder)

    def _train_task(self, task: Task) -> dict[str, KerasHistory]:
        needed = self.comm.bcast(
            self.comm.Get_rank() == 0 and status(task).refuse_longer().kind != "finished"
        )
        tune_malloc_and_timers()
        torch.set_num_threads(task.run.parallel.threads_per_rank)
        task.state.mkdir(parents=True, exist_ok=True)
        started, began = datetime.now(UTC), time.perf_counter()
        comm = MPICommunicator(self.comm, reduction_mode(task.run), task.run.parallel.peer_timeout)
        shape = Preprocessor(DataManifest.load(task.manifest), task.run.data, "cpu").shape
        with self._options.keras_objects():
            module = module_from_function(
                self.model_builder.build_model, shape, self._seed, activation_in_loss(task.run)
            )
        trainer = self._trainer(RankContext(task, comm, module=module), model_of_script(module))
        with closing(trainer):
            done = trainer.run()
        self.model, self.train_time = model_of_script(module), time.perf_counter() - began
        # A temporary folder is deleted after the training.
        # The results of a finished training stay as they are if the script is repeated.
        if done and self._folder and needed:
            publish_training(
                trainer, *(when.isoformat(timespec="seconds") for when in (started, datetime.now(UTC)))
            )
        return {
            MASTER_HISTORY_KEY: self.comm.bcast(keras_history(trainer.recorder) if comm.rank == 0 else None)
        }

    def _trainer(self, context: RankContext, model: Any) -> Trainer:
        trainer = Trainer(context, StopFlag())
        # Before `run`, which loads the checkpoint of an interrupted training over these weights.
        share_weights(trainer)
        if self.callbacks and context.comm.rank == 0:
            trainer.callbacks.append(KerasCallbacks(trainer, model, list(self.callbacks)))
        attach_observers(trainer)
        return trainer
