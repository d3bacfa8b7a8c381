"""Outputs of a training: settings in its log, progress bar, history in NNLO's form, hardware and final metrics in the summary."""

import csv
import json
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.observed_training import watched
from helpers.training_here import simulate, training_here
from safetensors.torch import load_file

from nnlo_lib.core import logging_setup
from nnlo_lib.data.partition import load_partition
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.base import build_problem
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.evaluation.evaluate import evaluation_batches, evaluation_sums, load_published_model
from nnlo_lib.train.publish import hardware_by_host, rank_hardware
from nnlo_lib.train.trainer import TERMINAL


def test_the_log_starts_with_the_settings_that_are_no_defaults(tmp_path, small_store):
    settings = {
        "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
        "algorithm": {"name": "easgd", "sync_every": 2, "alpha": 0.25},
        "train": {"optimizer": {"name": "sgd", "lr": 0.02, "nesterov": True, "momentum": 0.9}},
        "parallel": {"ranks": 3, "transport": "simulated"},
        "metrics": ["accuracy", "mse"],
    }
    simulate(watched(tmp_path / "job", small_store, {}, **settings))
    written = (tmp_path / "job/log.txt").read_text().splitlines()
    first, *lines = (line.split(" ", 2)[2] for line in written if line.count(" ") > 1)
    assert "easgd on 3 ranks" in first
    listed = lines[: next(number for number, line in enumerate(lines) if line.startswith("#"))]
    assert sorted(listed) == [
        "algorithm: easgd, sync_every 2, alpha 0.25",
        'metrics: ["accuracy", "mse"]',
        "model: simplemlp, args.hidden 4, args.layers 1",
        "parallel: ranks 3, transport simulated",
        "train: epochs 3, batch_size 20, optimizer sgd, optimizer.lr 0.02, optimizer.momentum 0.9, optimizer.nesterov true",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_each_epoch(tmp_path, small_store, monkeypatch, capfd, terminal):
    monkeypatch.delenv(TERMINAL, raising=False)
    monkeypatch.setattr(logging_setup, "DRAWING_SECONDS", 0.0)
    if terminal:
        monkeypatch.setenv(TERMINAL, "1")
    simulate(watched(tmp_path / "job", small_store, {}, train={"epochs": 2}, data={"validation": 0.1}))
    shown = capfd.readouterr().err
    for expected in ("epoch 1 ", "epoch 2 ", "100%", "samples/s  loss "):
        assert (expected in shown) == terminal


def test_the_history_has_the_form_of_nnlo(tmp_path, small_store):
    data = {"validation": 0.2}
    simulate(watched(tmp_path / "run", small_store, {"nnlo_history": True}, data=data))
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
    for name in ("nnlo_history.json", "validations.csv"):
        (tmp_path / "run" / name).write_text("of an earlier experiment")
    simulate(watched(tmp_path / "run", small_store, {}))
    assert not {"nnlo_history.json", "validations.csv"} & {path.name for path in (tmp_path / "run").iterdir()}


def rank(host, process=1, allowed=(0, 1), gpu=None):
    return {
        "host": host, "process": process, "cpu": "X", "cores": 16, "allowed": list(allowed), "threads": 2,
        "memory_bytes": 64, "gpu": gpu,
    }  # fmt: skip


def test_ranks_are_summed_by_host():
    """Cores and GPUs that several ranks share count once; ranks of one process share its threads."""
    first, second = {"name": "H200", "uuid": "a"}, {"name": "H200", "uuid": "b"}
    ranks = [
        rank("n1", 1, (0, 1), first), rank("n1", 2, (1, 2), first), rank("n2", 3, (5,), second), rank("n1", 4, (3,), second),
    ]  # fmt: skip
    found = hardware_by_host(ranks)
    assert list(found) == ["n1", "n2"]
    assert (found["n1"]["ranks"], found["n1"]["threads"], found["n1"]["cores_available"]) == (3, 6, 4)
    assert (found["n1"]["cores_per_rank"], found["n2"]["cores_per_rank"]) == ([1, 2], [1])
    assert (found["n1"]["gpus"], found["n2"]["gpus"]) == (["H200", "H200"], ["H200"])
    assert hardware_by_host([rank("n1"), rank("n1")])["n1"]["threads"] == 2


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="compares with /proc of Linux")
def test_a_rank_reports_its_own_host():
    found = rank_hardware("cpu")
    total = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1]
    assert found["memory_bytes"] == 1024 * int(total)
    (text,) = re.findall(r"Cpus_allowed_list:\s*(.+)", Path("/proc/self/status").read_text())
    ranges = [list(map(int, part.split("-"))) for part in text.split(",")]
    assert found["allowed"] == [core for ends in ranges for core in range(ends[0], ends[-1] + 1)]
    assert found["gpu"] is None


def test_a_summary_has_hardware_flops_and_the_published_step(tmp_path, small_store):
    """Two simulated ranks on this host; the page reads these keys."""
    task = simulate(watched(tmp_path / "job", small_store, {}, ranks=2, train={"restore_best": "train_loss"}))
    summary = json.loads((task.folder / "summary.json").read_text())
    (host,) = summary["hardware"]
    assert host == socket.gethostname()
    assert summary["hardware"][host]["ranks"] == 2
    flops = summary["model"]["flops"]
    # One pass through a classifier is all that a step of its training computes.
    assert flops["training"] == flops["forward"] + flops["backward"] > 0
    assert summary["published_step"] > 0


# An algorithm whose nodes agree, and settings in which nodes differ much from their mean.
TRAININGS = {
    "allreduce": {"algorithm": {"name": "allreduce"}},
    "dinno": {"algorithm": {"name": "dinno"}, "topology": {"name": "cycle"}},
    "individual": {"algorithm": {"name": "individual"}},
    "best of individual": {"algorithm": {"name": "individual"}, "restore_best": "val_loss"},
}


def measured(run):
    """Return the metrics of model.safetensors on the validation samples."""
    finished = FinishedRun(run.job)
    data = DataManifest.load(run.folder / finished.summary["data"]["manifest"])
    module, tensors = load_published_model(finished.config, data, finished.paths.model, "cpu")
    assert load_file(finished.paths.model).keys() == module.state_dict().keys()
    problem, samples = build_problem(finished.config), load_partition(finished.paths.partition)[0]
    with torch.no_grad():
        sums = evaluation_sums(
            module, evaluation_batches(module, Split(data, "train"), np.asarray(samples), tensors), problem
        )
    return problem.means(sums)


@pytest.mark.parametrize("name", TRAININGS)
def test_final_metrics_are_those_of_the_published_weights(tmp_path, name):
    settings = dict(TRAININGS[name])
    train = {
        "epochs": 2,
        "batch_size": 64,
        **({"restore_best": best} if (best := settings.pop("restore_best", "")) else {}),
    }
    run = training_here(tmp_path, ranks=4, train=train, **settings)
    run.finish()
    final = json.loads((run.job / "summary.json").read_text())["final"]
    for metric, value in measured(run).items():
        assert final[f"val_{metric}"] == pytest.approx(value, rel=1e-6)
    apart = name != "allreduce"
    assert ("val_loss_mean" in final) == apart
    if apart:
        rows = {row["val_loss"]: row for row in run.rows}
        row = rows[min(rows)] if best else run.rows[-1]
        assert final["val_accuracy_mean"] == row["val_accuracy"]
        assert final["val_accuracy_min"] <= final["val_accuracy_mean"] <= final["val_accuracy_max"]
        assert final["val_loss"] != final["val_loss_mean"]
