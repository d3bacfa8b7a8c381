"""The batched simulator computes the same results as the exact one, up to rounding, for any network."""

import pytest
import torch
from helpers.observed_training import watched
from helpers.training_here import simulate
from helpers.training_process import TIMINGS
from safetensors.torch import load_file

from nnlo_lib.config import Experiment
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

NETWORKS = """
import torch
from torch import nn

def normalised(shape, classes):
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3),
        nn.Flatten(), nn.Linear(height * width, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, classes),
    )

class Odd(nn.Module):
    '''Tied layers, a parameter of its own, and samples that see each other.'''

    def __init__(self, size, classes):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, classes)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images):
        flat = images.flatten(1)
        flat = torch.tanh(self.first(flat - 0.1 * flat.mean(0)))
        return self.last(self.scale * torch.tanh(self.second(flat)))

def odd(shape, classes):
    channels, height, width = shape
    return Odd(channels * height * width, classes)
"""
SGD = {"name": "sgd", "lr": 0.02, "momentum": 0.9}
RUNS = {
    "dinno": ({"name": "dinno"}, "simplecnn", {"partition": {"name": "by_class"}}),
    "dsgt": ({"name": "dsgt"}, "dinno_conv", {"partition": {"name": "dirichlet", "alpha": 0.5}}),
    "batch norm": ({"name": "dsgd"}, "networks.py:normalised", {"partition": {"name": "by_class"}}),
    "tied": ({"name": "dsgd"}, "networks.py:odd", {}),
    "allreduce": ({"name": "allreduce"}, "simplemlp", {}),
    "downpour": ({"name": "downpour"}, "simplecnn", {}),
    "gosgd": ({"name": "gosgd", "probability": 0.3}, "simplecnn", {"partition": {"name": "by_class"}}),
}


@pytest.mark.parametrize("case", RUNS)
def test_batched_equals_exact(tmp_path, manifest, case):
    algorithm, model, data = RUNS[case]
    (tmp_path / "networks.py").write_text(NETWORKS)
    settings = {
        "algorithm": algorithm, "data": data, "topology": {"name": "cycle"},
        "model": {"name": model.replace("networks.py", str(tmp_path / "networks.py"))},
        "train": {"epochs": 2, "batch_size": 32, "steps_per_epoch": 6, "optimizer": SGD},
    }  # fmt: skip
    folders = []
    for compute in ("exact", "batched"):
        parallel = {"ranks": 4, "transport": "simulated", "simulation": {"compute": compute}}
        run = Plan.of(Experiment.model_validate(settings | {"parallel": parallel})).run(algorithm["name"])
        folders.append(tmp_path / compute)
        assert train_simulated(Task("t", compute, run, 0, None, 1, manifest, folders[-1]), StopFlag())
    exact, batched = (load_file(folder / "model.safetensors") for folder in folders)
    for name, tensor in exact.items():
        torch.testing.assert_close(batched[name], tensor, rtol=1e-3, atol=1e-5)
    for one, other in zip(*map(history, folders), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=2e-3)


def history(folder):
    """Return the rows of the history without timings."""
    rows = read_rows(folder / "state/history.jsonl")
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


@pytest.mark.parametrize("batch_size", [5, 12])
def test_batched_gradients_in_float64_have_the_digits_of_float64(tmp_path, small_store, batch_size):
    weights = []
    for compute in ("exact", "batched"):
        train = {"batch_size": batch_size, "precision": "float64", "optimizer": SGD, "epochs": 1}
        parallel = {"ranks": 3, "transport": "simulated", "simulation": {"compute": compute}}
        settings = {"train": train, "parallel": parallel, "model": {"name": "simplemlp"}}
        settings |= {"problem": {"class_weights": {"1": 9}, "mixup": 0.4}, "metrics": ["balanced_accuracy"]}
        simulate(watched(tmp_path / compute, small_store, {}, **settings))
        weights.append(load_file(tmp_path / compute / "model.safetensors"))
    for name, exact in weights[0].items():
        torch.testing.assert_close(weights[1][name], exact, rtol=1e-12, atol=1e-14)
