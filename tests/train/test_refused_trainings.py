"""Trainings that are refused: models, data and losses with which no training is possible, and settings that would train wrongly.

test_gan_guarantees.py has the settings of GANs, test_elastic.py other numbers of ranks.
"""

import json
import os
import shutil

import pytest
from helpers.observed_training import watched
from helpers.store_folder import store_folder
from helpers.training_here import digits, training_here
from pydantic import ValidationError

from nnlo_lib.algorithms.parameter_server.downpour import Downpour
from nnlo_lib.config import Run, merge_settings
from nnlo_lib.config.rules import combinations
from nnlo_lib.core.errors import DivergedError
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

OUTPUTS = ("model.safetensors", "history.csv", "summary.json", "trace.json", "log.txt", "evaluation.json")
NORMALIZED = "return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 10))"
MODELS = {
    "raise ValueError('too deep')": "ValueError: too deep",
    "return 42": "returned int; it must return a torch.nn.Module",
    "return torch.nn.Flatten()": "no trainable parameter",
    "import nowhere": "No module named 'nowhere'",
    NORMALIZED: "in step 3 of each epoch, on rank 0: batch normalization cannot normalize",
}


@pytest.mark.parametrize("body", MODELS)
def test_a_model_that_cannot_be_trained(tmp_path, body):
    (tmp_path / "net.py").write_text(f"import torch\n\n\ndef build(shape, classes):\n    {body}\n")
    run = training_here(tmp_path, model={"name": "net.py:build", "args": {}}, train={"batch_size": 324})
    said = run.finish(expect=2)
    assert MODELS[body] in said.splitlines()[-1]
    assert "Traceback" not in said
    assert not run.epochs_done()


@pytest.mark.parametrize("algorithm", ["allreduce", "downpour"])
def test_a_loss_that_is_not_a_number(tmp_path, algorithm):
    run = training_here(tmp_path, algorithm, 3, train={"optimizer": {"lr": 1e30}})
    said = run.finish(expect=2)
    assert "the loss became" in said.splitlines()[-1]
    assert "train.optimizer.lr" in said
    assert "Traceback" not in said
    assert not [name for name in OUTPUTS if (run.job / name).exists()]
    [failure] = (run.job / "state/failures").iterdir()
    assert json.loads(failure.read_text())["reason"] == "diverged"


def test_more_workers_than_samples(tmp_path):
    said = training_here(tmp_path, ranks=3, data={"validation": 0.9995}).finish(expect=2)
    assert "3 ranks for 1 training samples" in said


def test_an_unreadable_shard(tmp_path):
    shutil.copytree(digits().parent, tmp_path / store_folder())
    shard = next((tmp_path / store_folder()).glob("train-*.h5"))
    os.truncate(shard, 1000)
    said = training_here(tmp_path).finish(expect=2)
    assert shard.name in said
    assert f"rm -f {shard.relative_to(tmp_path)}" in said


# Settings that the check refuses train wrongly without the check

SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "train": {"epochs": 2, "batch_size": 6, "optimizer": {"name": "sgd", "lr": 0.05}},
    "algorithm": {"name": "downpour"},
    "parallel": {"ranks": 3, "transport": "simulated"},
}


def unchecked(folder, manifest, monkeypatch, changes):
    """Train with settings that the check refuses."""
    given = merge_settings(SETTINGS, changes)
    with pytest.raises(ValidationError):
        Run.model_validate(given)
    monkeypatch.setattr(combinations, "_faults", lambda *_: iter(()))
    assert train_simulated(watched(folder, manifest, {}, **given), StopFlag())


@pytest.mark.parametrize("sync_every", [1, 4])
def test_fp16_diverges_because_the_server_applies_scaled_gradients(
    tmp_path, small_store, monkeypatch, sync_every
):
    changes = {"algorithm": {"sync_every": sync_every}}
    plain = merge_settings(SETTINGS, merge_settings(changes, {"train": {"precision": "bf16"}}))
    assert train_simulated(watched(tmp_path / "bf16", small_store, {}, **plain), StopFlag())
    with pytest.raises(DivergedError):
        unchecked(tmp_path, small_store, monkeypatch, changes | {"train": {"precision": "fp16"}})


@pytest.mark.parametrize(
    "changes", [{"schedule": {"name": "linear", "final": 0.001}}, {"warm_up": {"steps": 5}}], ids=str
)
def test_the_rate_of_the_server_ignores_the_steps_of_a_schedule(tmp_path, small_store, monkeypatch, changes):
    rates, update = [], Downpour.update

    def noted(self, replica, number):
        rates.append(replica.lr)
        return update(self, replica, number)

    monkeypatch.setattr(Downpour, "update", noted)
    unchecked(tmp_path, small_store, monkeypatch, {"train": changes})
    # The rate changes between epochs only; a schedule changes it after each step.
    assert len(rates) > 10
    assert len(set(rates)) <= SETTINGS["train"]["epochs"]
