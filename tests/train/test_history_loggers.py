"""Histories in TensorBoard, MLflow and Weights & Biases, read back: each row once, also after a resume.

TensorBoard's files are read by a minimal parser of TFRecord files, the others offline with their packages.
"""

import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.observed_training import store, watched
from helpers.requires import absent
from helpers.training_here import simulate
from helpers.training_process import StopAfter

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train import history_loggers
from nnlo_lib.train.history_loggers import TensorBoardFile
from nnlo_lib.train.rank import train_simulated

RESUMED = {"train": {"epochs": 6}, "checkpoint": {"every": "4 epochs"}}
COLUMNS = {
    "train/loss": "train_loss", "val/loss": "val_loss", "val/accuracy": "val_accuracy", "learning_rate": "learning_rate",
}  # fmt: skip


def scalars(folder):
    """Return step, time and value of each scalar in TensorBoard's only file: records of length, checksum, data, checksum."""
    try:
        from tensorboardX.proto.event_pb2 import Event
    except ImportError:
        absent("tensorboardX is not installed")
    (path,) = folder.glob("tensorboard/events.out.tfevents.*")
    data, place, events = path.read_bytes(), 0, []
    while place < len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        events.append(Event.FromString(data[place + 12 : place + 12 + size]))
        place += 16 + size
    first, *events = events
    assert first.file_version == "brain.Event:2"
    found = defaultdict(list)
    for event in events:
        for value in event.summary.value:
            found[value.tag].append((event.step, event.wall_time, value.simple_value))
    return found


@pytest.fixture
def in_tensorboard():
    """Return a function that reads step and value of the validation losses of a task; no settings are kept."""

    def read(task):
        found, rows = scalars(task.folder), read_rows(task.paths.state.history)
        for tag, column in COLUMNS.items():
            assert [value for *_, value in found[tag]] == pytest.approx(
                [row[column] for row in rows], rel=1e-6
            )
        times = [time for _, time, _ in found["val/loss"]]
        lasted = [row["seconds"] - rows[0]["seconds"] for row in rows]
        assert [time - times[0] for time in times] == pytest.approx(lasted, abs=1e-3)
        assert not {"epoch", "step", "samples", "seconds"} & found.keys()
        return [(step, value) for step, _, value in found["val/loss"]], {}

    return read


@pytest.fixture
def in_mlflow(monkeypatch):
    """Return a function that reads the same of a task's only run, and its parameters."""
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed; pip install nnlo[mlflow]")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def read(task):
        client = mlflow.MlflowClient(f"sqlite:///{task.folder / 'mlflow.db'}")
        (run,) = client.search_runs([client.get_experiment_by_name("t").experiment_id])
        losses = client.get_metric_history(run.info.run_id, "val/loss")
        assert run.info.status == "FINISHED"
        return [(each.step, each.value) for each in losses], run.data.params

    return read


def log_records(data):
    """Yield the records of a LevelDB log behind 7 bytes of its own header: pieces in blocks of 32 KiB."""
    place, record = 7, b""
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:  # too little for a header
            place += 2**15 - place % 2**15
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        record, place = record + data[place + 7 : place + 7 + size], place + 7 + size
        if kind in (1, 4):  # a whole record, or its last piece
            yield record
            record = b""


@pytest.fixture
def in_wandb(monkeypatch):
    """Return a function that reads the same of the only offline run of Weights & Biases."""
    pytest.importorskip("wandb", reason="wandb is not installed; pip install nnlo[wandb]")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")

    def read(task):
        (path,) = task.folder.glob("wandb/offline-run-*/*.wandb")
        losses, settings = [], {}
        for data in log_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            values = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            if "val/loss" in values:
                losses.append((record.history.step.num, values["val/loss"]))
            settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        return losses, settings

    return read


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_resumed_run_logs_each_row_once(tmp_path, name, request):
    read = request.getfixturevalue(f"in_{name}")
    task = watched(tmp_path / "t/seed-0", store(tmp_path), {name: True}, **RESUMED)
    stops = 0
    while not train_simulated(task, StopAfter(25)):
        stops += 1
    assert stops > 1
    losses, settings = read(task)
    rows = read_rows(task.paths.state.history)
    assert losses == [(row["step"], pytest.approx(row["val_loss"])) for row in rows]
    assert str(settings.get("train.epochs", 6)) == "6"


class Recorded(history_loggers.HistoryLogger):
    """A service in memory, whose rows survive a killed training."""

    rows: ClassVar[list] = []

    def _open(self):
        return 1 + max((step for step, _ in self.rows), default=-1)

    def _log(self, step, seconds, values):
        self.rows.append((step, values["val/loss"]))

    def close(self): ...


def test_rows_that_the_service_has_are_left_out(tmp_path):
    """A killed training trains the steps after its checkpoint once more; without the checkpoint, all of them."""
    task = watched(tmp_path / "t/seed-0", store(tmp_path), {})
    rows = [{"step": 10 * n, "seconds": float(n), "val_loss": 1 / n} for n in range(1, 5)]
    for kept, trained in ((0, rows[:3]), (1, rows[1:3]), (3, rows[3:])):
        logger = Recorded(task)
        logger.rewrite(rows[:kept])
        for row in trained:
            logger.add(row)
    assert Recorded.rows == [(row["step"], row["val_loss"]) for row in rows]


def test_a_service_that_fails_ends_its_rows_with_a_warning(tmp_path, monkeypatch, capsys):
    class Failing(Recorded):
        def _open(self):
            return 0

        def _log(self, step, seconds, values):
            raise ConnectionError("no route to host")

    monkeypatch.setattr("nnlo_lib.config.checkpoint.find_spec", bool)
    monkeypatch.setattr(history_loggers, "MLflowRun", Failing)
    simulate(watched(tmp_path / "t/seed-0", store(tmp_path), {"mlflow": True}))
    assert (
        capsys.readouterr().err.count("observe.mlflow: no further rows are logged (ConnectionError: no route")
        == 1
    )


def test_rows_after_the_checkpoint_are_written_anew(tmp_path):
    task = watched(tmp_path / "job", store(tmp_path), {})
    rows = [{"step": 10 * n, "seconds": float(n), "val_loss": 1.0 / n} for n in range(1, 5)]
    board = TensorBoardFile(task)
    board.rewrite([])
    for row in rows:
        board.add(row)
    del board  # as if the process was killed
    board = TensorBoardFile(task)
    board.rewrite(rows[:2])
    board.add(rows[2] | {"val_loss": 9.0})
    board.close()
    found = [(step, value) for step, _, value in scalars(task.folder)["val/loss"]]
    assert found == [(10, 1.0), (20, 0.5), (30, 9.0)]


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_refused_with_the_remedy(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(f"name: t\nobserve:\n  {name}: true\n")
    monkeypatch.setattr("nnlo_lib.config.checkpoint.find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"t.yaml:3: observe.{name}: .*pip install 'nnlo\[{name}\]'"):
        load_experiment("t.yaml")
    with pytest.raises(UserError, match=rf"observe.{name}: .*pip install"):
        simulate(watched(tmp_path / "t/seed-0", store(tmp_path), {name: True}))
