"""Loggers of the history: TensorBoard, MLflow, and Weights & Biases; each is a package that a user may have or not."""

import hashlib
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import environ
from typing import Any

from nnlo_lib.config.base import non_defaults
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import mask_settings
from nnlo_lib.state.training_records import TableRow
from nnlo_lib.train.callback import Callback, Event
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.task import Task

EVENT_FILE_SUFFIX = ".nnlo"  # tells the event files of a training from those of other programs
EXCLUDED_COLUMNS = ("epoch", "step", "samples", "seconds")  # the axes of the charts, and their sums


class HistoryLogger(ABC):
    """Logs each row of a history once, at its step, also if a training is resumed.

    A logger only appends: rows up to the last step that it has are left out. The same training in the same folder continues
    its log.
    """

    def __init__(self, task: Task) -> None:
        self._task, self._zero, self._next_step = task, 0.0, 0
        self._key = hashlib.sha256(f"{task.folder.absolute()} {task.fingerprint}".encode()).hexdigest()[:16]
        levels = 1 if task.fold is None else 2
        self._title = f"{task.name}/{'/'.join(task.folder.parts[-levels:])}"

    def rewrite(self, rows: Sequence[TableRow]) -> None:
        """Find or create the log, and write the rows that it lacks."""
        self.close()
        # The time of the first step continues the training seconds of the last row, without interruptions.
        self._zero = time.time() - (rows[-1]["seconds"] if rows else 0.0)
        self._next_step = self._open()
        for row in rows:
            self.add(row)

    def add(self, row: TableRow) -> None:
        """Log the numbers of a row, unless the log has its step; charts are grouped by the split: `train/loss`."""
        if row["step"] < self._next_step:
            return
        found = {}
        for name, value in row.items():
            if name not in EXCLUDED_COLUMNS and isinstance(value, int | float):
                split, _, rest = name.partition("_")
                found[f"{split}/{rest}" if split in ("train", "val") else name] = value
        self._log(row["step"], self._zero + row["seconds"], found)

    @property
    def _settings(self) -> dict[str, Any]:
        """Settings that differ from the defaults, by their keys in the experiment file: train.optimizer.lr."""
        import pandas as pd  # ranks without these loggers start faster

        records: Any = pd.json_normalize(mask_settings(non_defaults(self._task.run))).to_dict("records")
        return dict(records[0])

    @abstractmethod
    def close(self) -> None:
        """End the log, if it is open."""

    @abstractmethod
    def _open(self) -> int:
        """Find or create the log; return the first step that it does not have."""

    @abstractmethod
    def _log(self, step: int, seconds: float, values: dict[str, float]) -> None:
        """Log values of a step; `seconds` since 1970."""


class HistoryCallback(Callback):
    """Passes each row of the history and of the validations within epochs to a logger.

    An error of a logger ends its rows, with a warning, not the training.
    """

    def __init__(self, name: str, task: Task, recorder: Recorder) -> None:
        if missing := task.run.observe.missing_packages.get(name):
            raise UserError(f"observe.{name}: {missing}")
        self._name, self._recorder = name, recorder
        kinds: dict[str, type[Any]] = {"tensorboard": TensorBoardFile, "mlflow": MLflowRun, "wandb": WandbRun}
        self._logger: HistoryLogger | None = kinds[name](task)

    def on(self, event: Event) -> None:
        if event == "rewound":
            self._pass("rewrite", self._recorder.validation_rows)
        elif event == "epoch recorded":
            self._pass("add", self._recorder.history.rows[-1])
        elif event == "validation recorded":
            self._pass("add", self._recorder.validations.rows[-1])

    def close(self) -> None:
        self._pass("close")

    def _pass(self, method: str, *rows: Any) -> None:
        if self._logger is None:
            return
        try:
            getattr(self._logger, method)(*rows)
        except Exception as error:  # of the package, its server, the disk or the network: many types
            self._logger = None
            self._recorder.journal.warn(
                f"observe.{self._name}: no further rows are logged ({type(error).__name__}: {error}); the same command logs them "
                "when it resumes the training"
            )


class TensorBoardFile(HistoryLogger):
    """An event file of TensorBoard; each attempt starts a new one, with the rows of its checkpoint."""

    _file: Any = None

    def _open(self) -> int:
        # These classes write without the package's background thread.
        from tensorboardX.event_file_writer import EventsWriter

        folder = self._task.paths.tensorboard
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"events.out.tfevents.*{EVENT_FILE_SUFFIX}"):
            # TensorBoard shows the rows of all files in a folder: rows after the checkpoint would appear twice.
            old.unlink()
        self._file = EventsWriter(str(folder / "events"), EVENT_FILE_SUFFIX)
        return 0

    def _log(self, step: int, seconds: float, values: dict[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event as Record

        record = Record(wall_time=seconds, step=step)
        for tag, value in values.items():
            record.summary.value.add(tag=tag, simple_value=value)
        self._file.write_event(record)
        self._file.flush()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class MLflowRun(HistoryLogger):
    """A run of MLflow, at MLFLOW_TRACKING_URI, or in a database in the folder of the training."""

    _run = ""

    def _open(self) -> int:
        from mlflow import MlflowClient

        task = self._task
        self._client = MlflowClient(
            environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{task.paths.mlflow.absolute()}"
        )
        found = self._client.get_experiment_by_name(task.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(task.experiment)
        runs = self._client.search_runs([experiment], f"tags.nnlo = '{self._key}'")
        if not runs:
            run = self._client.create_run(experiment, run_name=self._title, tags={"nnlo": self._key})
            for name, value in self._settings.items():
                self._client.log_param(run.info.run_id, name, value)
            self._run = run.info.run_id
            return 0
        self._run = runs[0].info.run_id
        self._client.update_run(self._run, status="RUNNING")
        logged = (self._client.get_metric_history(self._run, name) for name in runs[0].data.metrics)
        return max((each.step + 1 for values in logged for each in values), default=0)

    def _log(self, step: int, seconds: float, values: dict[str, float]) -> None:
        from mlflow.entities import Metric

        moment = int(1000 * seconds)
        self._client.log_batch(
            self._run, [Metric(name, value, moment, step) for name, value in values.items()]
        )

    def close(self) -> None:
        if self._run:
            self._client.set_terminated(self._run)
        self._run = ""


class WandbRun(HistoryLogger):
    """A run of Weights & Biases; offline, each attempt replaces its files by those with all rows."""

    _run: Any = None

    def _open(self) -> int:
        import wandb

        for old in (self._task.paths.wandb).glob(f"offline-run-*-{self._key}"):
            shutil.rmtree(old)
        self._run = wandb.init(
            project=self._task.experiment,
            id=self._key,
            name=self._title,
            dir=self._task.folder,
            resume="allow",
            config=self._settings,
            settings=wandb.Settings(console="off", silent=True),
        )
        return int(self._run.starting_step)

    def _log(self, step: int, seconds: float, values: dict[str, float]) -> None:
        self._run.log({**values, "_timestamp": seconds}, step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
        self._run = None
