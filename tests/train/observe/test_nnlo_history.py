"""History in NNLO's JSON format, compared with history.csv."""

import csv
import json

import pytest
from helpers.observed_training import watched

from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated


def test_the_history_has_the_form_of_nnlo(tmp_path, small_store):
    data = {"validation": 0.2}
    task = watched(tmp_path / "run", small_store, {"nnlo_history": True}, data=data)
    assert train_simulated(task, StopFlag())
    found = json.loads((tmp_path / "run/nnlo_history.json").read_text())
    with (tmp_path / "run/history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {
        "0:0:-": {"val_loss": "val_loss", "val_acc": "val_accuracy"},
        "1:1:-": {"loss": "train_loss", "acc": "train_accuracy"},
    }
    wanted = {
        process: {name: [float(row[column]) for row in rows] for name, column in names.items()}
        for process, names in columns.items()
    }
    assert len(rows) == 3
    assert found["history"] == wanted
    assert found["train_time"] == pytest.approx(float(rows[-1]["seconds"]))
    assert found["args"]["train"]["epochs"] == 3
    assert "nnlo_history.json" in json.loads((tmp_path / "run/summary.json").read_text())["outputs"]


def test_without_the_setting_no_file_is_left(tmp_path, small_store):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/nnlo_history.json").write_text("of an earlier experiment")
    assert train_simulated(watched(tmp_path / "run", small_store, {}), StopFlag())
    assert not (tmp_path / "run/nnlo_history.json").exists()
