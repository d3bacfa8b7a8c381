"""What a script of mpi_learn's users ends with: all ranks train together."""

import inspect
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from nnlo_lib.comm.mpi import MPICommunicator
from nnlo_lib.config import Data as DataBlock
from nnlo_lib.config import Run, merge
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.models.build import module_of
from nnlo_lib.mpi_learn.algo import Algo
from nnlo_lib.mpi_learn.data import Data
from nnlo_lib.mpi_learn.model import ModelBuilder
from nnlo_lib.mpi_learn.store import NAME, make_store
from nnlo_lib.mpi_learn.training import History, ScriptTraining, complain
from nnlo_lib.train.observe.observers import observers
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.publish import publish
from nnlo_lib.train.rank import reduction_of
from nnlo_lib.train.replica.initial_model import undone
from nnlo_lib.train.replica.tensors import Tensors
from nnlo_lib.train.task import Task
from nnlo_lib.train.tuning import tune_process

ROOT = "0:0:-"  # how mpi_learn calls the master in its histories


class MPIManager:
    """Train with all ranks of `comm`, whose others begin at once and end with rank 0, which begins at `train`.

    settings: keys of an experiment (docs/experiment.md) that go before what the others say. folder: where results and
    checkpoints stay, so that a script that is started again goes on; None: nowhere.
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
        synchronous: bool = False,
        callbacks: Sequence[Any] = (),
        seed: int = 0,
        folder: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.comm, self.data, self.algo, self.model_builder = comm, data, algo, model_builder
        self.epochs, self.lists, self.callbacks = num_epochs, (list(train_list), list(val_list)), callbacks
        self._wishes = algo.settings(comm.Get_size(), num_masters, synchronous)
        self._seed, self._kept, self._more = seed, folder, settings or {}
        self._histories: dict[str, History] | None = None
        self.model: Any = None
        self.process = self  # mpi_learn: manager.process.train()
        if comm.Get_rank():
            self.train()

    def train(self) -> dict[str, History]:
        """Train, once, and return the histories; on every rank or on rank 0 only. An error ends all ranks."""
        if self._histories is None:
            try:
                self._histories = self._trained()
            except BaseException as error:
                complain(error)
                self.comm.Abort(1)
        return self._histories or {}

    def get_histories(self, comm: Any = None) -> dict[str, History]:
        """Return what `train` did."""
        return self._histories or {}

    def record_details(self, json_name: str, meta: dict[str, Any] | None = None) -> None:
        """Write time and histories to a JSON file, as mpi_learn did; on rank 0."""
        if self.comm.Get_rank() == 0:
            content = {"train_time": self.train_time, "history": self._histories, **(meta or {})}
            Path(json_name).write_text(json.dumps(content, indent=1))

    def free_comms(self) -> None:
        """Do nothing: MPI ends by itself."""

    def _trained(self) -> dict[str, History]:
        first = self.comm.Get_rank() == 0
        folder = Path(
            self.comm.bcast(
                (self._kept or tempfile.mkdtemp(prefix=".mpi_learn-", dir=".")) if first else None
            )
        )
        try:
            block = self.comm.bcast(self._store(folder / "data") if first else None)
            task = self._task(DataBlock.model_validate_json(block[0]), block[1], folder)
            return self._train_on(task)
        finally:
            if first and not self._kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _store(self, folder: Path) -> tuple[str, int]:
        """Make the store; return what all ranks must know of it: its block as JSON, and the batch size."""
        one_hot = self.algo.loss not in ("mse", "mae", "huber")
        block = make_store(self.data, *self.lists, one_hot, folder)
        return block.model_dump_json(), self.data.batch_size or 100

    def _task(self, data: DataBlock, batch_size: int, folder: Path) -> Task:
        manifest = folder / "data/store/manifest.json"
        learned = "classification" if Manifest.load(manifest).classes else "regression"
        builder = type(self.model_builder)
        settings = {
            "data": data.model_dump(mode="json"),
            "model": {"name": f"{inspect.getsourcefile(builder)}:{builder.__name__}"},
            "problem": {"name": learned},
            "loss": self.algo.loss,
            "parallel": {"ranks": self.comm.Get_size(), "transport": "mpi"},
        }
        settings = merge(
            settings, merge(self._wishes, {"train": {"epochs": self.epochs, "batch_size": batch_size}})
        )
        run = Run.model_validate(merge(settings, self._more))
        return Task(NAME, "script", run, self._seed, None, 1, manifest, folder)

    def _train_on(self, task: Task) -> dict[str, History]:
        tune_process()
        torch.set_num_threads(task.run.parallel.threads_per_rank)
        task.state.mkdir(parents=True, exist_ok=True)
        started, began = datetime.now(UTC), time.perf_counter()
        comm = MPICommunicator(self.comm, reduction_of(task.run), task.run.parallel.peer_timeout)
        shape = Tensors(Manifest.load(task.manifest), task.run.data, "cpu").shape
        module = module_of(self.model_builder.build_model, shape, self._seed, undone(task.run))
        training = ScriptTraining(task, comm, StopFlag(), module, self.callbacks)
        with observers(training):
            done = training.run()
        self.model, self.train_time = training.model, time.perf_counter() - began
        if done and self._kept:
            publish(training, *(when.isoformat(timespec="seconds") for when in (started, datetime.now(UTC))))
        return {ROOT: self.comm.bcast(training.history() if comm.rank == 0 else None)}
