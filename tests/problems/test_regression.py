"""Regression experiments from training to evaluation and report."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.workflow.plan import Plan

DIABETES = {
    "data": {"dataset": "diabetes", "validation": 0.2, "normalize": "standard"},
    "model": {"name": "perceptron", "args": {"hidden": [32, 32]}},
    "problem": "regression",
    "train": {"epochs": 30, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 1e-5, "momentum": 0.9}},
}
MODEL = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, inputs):
        return {"first": self.one(inputs), "second": self.two(inputs)}


def linear(shape, outputs):
    assert (shape, outputs) == ((3,), 2)
    return nn.Linear(3, outputs)


def two(shape, outputs):
    return Two()


def fourth(outputs, targets):
    return ((outputs - targets) ** 4).mean(1)

"""


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """Return a folder with models and with samples of a linear function with two outputs."""
    folder, rng = tmp_path_factory.mktemp("linear"), np.random.default_rng(1)
    for name, samples in (("train", 320), ("test", 80)):
        inputs = rng.normal(size=(samples, 3)).astype(np.float32)
        targets = inputs @ [[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]] + [0.1, -0.2]
        np.savez(folder / f"{name}.npz", features=inputs, labels=targets)
    (folder / "models.py").write_text(MODEL)
    return folder


@dataclass(frozen=True)
class Learned:
    """Results of a training in this process."""

    evaluation: dict
    rows: list[dict[str, float]]


def learned(
    folder: Path, files: Path | None = None, one_hot=False, ranks=2, compute="exact", **settings
) -> Learned:
    """Train on arrays in the folder `files`, or else on the data set of `settings`; return evaluation and history.

    Outputs are in `folder`; `one_hot` treats all labels as classes.
    """
    data = settings.pop("data", {})
    if files is not None:
        reader = {"name": "arrays", "train": ["train.npz"], "one_hot": one_hot}
        reader |= {"test": ["test.npz"]} if (files / "test.npz").exists() else {}
        data = {"dataset": "mine", "source": str(files), "reader": reader} | data
    parallel = {"ranks": ranks, "transport": "simulated", "simulation": {"compute": compute}}
    experiment = Experiment.model_validate(
        {"data": data, "parallel": parallel, "runs": {"run": {}}, **settings}
    )
    run, manifest = Plan.of(experiment).run("run"), folder / "store" / "manifest.json"
    if not manifest.exists():
        prepare_dataset(run.data, manifest.parent)
    assert train_simulated(Task("t", "run", run, 0, None, 1, manifest, folder / compute), StopFlag())
    evaluate_model(run, manifest, folder / compute / "model.safetensors", folder / "evaluation.json")
    with (folder / compute / "history.csv").open(newline="") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return Learned(json.loads((folder / "evaluation.json").read_text()), rows)


def of_linear(folder, model="linear", **changes):
    return {
        "files": folder,
        "model": {"name": f"{folder}/models.py:{model}"},
        "problem": "regression",
        "train": {"epochs": 12, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
        **changes,
    }


def test_diabetes_is_predicted_better_than_by_the_mean(tmp_path):
    from sklearn.datasets import load_diabetes

    found, targets = learned(tmp_path, **DIABETES).evaluation, load_diabetes().target
    assert {"classes", "split", "samples", "loss", "mae"} <= found.keys()
    assert "confusion" not in found
    test = targets[4::5]
    assert found["loss"] < 0.75 * np.mean((test - np.delete(targets, np.s_[4::5]).mean()) ** 2)


def test_a_linear_law_is_found(tmp_path, linear):
    metrics = ["mse", "mae", f"{linear}/models.py:fourth"]
    found = learned(tmp_path, **of_linear(linear, metrics=metrics))
    assert found.evaluation["loss"] == pytest.approx(found.evaluation["mse"])
    assert found.evaluation["loss"] < 1e-6
    assert found.evaluation["fourth"] < 1e-12
    assert found.rows[-1]["val_fourth"] < 1e-12


def test_losses_of_several_outputs_and_of_users(tmp_path, linear):
    loss = {"first": "mse", "second": f"{linear}/models.py:fourth"}
    changes = {"loss": loss, "loss_weights": {"second": 0.01}, "metrics": ["mae", "mae@second"]}
    found = learned(tmp_path, **of_linear(linear, "two", **changes))
    assert found.evaluation["mae"] < 1e-4 < found.evaluation["second_mae"] < 1
    assert {"train_second_mae", "val_second_mae"} <= found.rows[0].keys()


def test_batched_ranks_have_one_output(tmp_path, linear):
    with pytest.raises(UserError, match=r"batched supports models with a single output only"):
        learned(tmp_path, compute="batched", **of_linear(linear, "two"))


def test_numbers_are_no_classes(tmp_path, linear):
    message = r"cross_entropy needs targets from 0 to 1, .* set problem: regression"
    with pytest.raises(UserError, match=message):
        learned(tmp_path, **of_linear(linear, problem="classification"))
    with pytest.raises(UserError, match=r"data\.partition: by_class divides the samples by class"):
        learned(tmp_path, **of_linear(linear, data={"partition": {"name": "by_class"}}))
