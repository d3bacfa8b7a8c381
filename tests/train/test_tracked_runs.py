"""Histories in MLflow and Weights & Biases, offline, read back with the packages: each row once, also after a resume."""

import json
import struct
from typing import ClassVar

import pytest
from helpers.observed_training import store, watched
from helpers.training_here import simulate
from helpers.training_process import StopAfter

from nnlo_lib.core.errors import UserError
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train import history_loggers
from nnlo_lib.train.rank import train_simulated

RESUMED = {"train": {"epochs": 6}, "checkpoint": {"every": "4 epochs"}}


@pytest.fixture
def in_mlflow(monkeypatch):
    """Return a function that reads step and value of the validation losses of a task's only run, and its parameters."""
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


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
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
    assert str(settings["train.epochs"]) == "6"


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


def test_a_missing_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("nnlo_lib.config.checkpoint.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"observe.wandb: wandb is not installed; pip install .nnlo\[wandb\]"):
        simulate(watched(tmp_path / "t/seed-0", store(tmp_path), {"wandb": True}))
