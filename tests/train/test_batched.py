"""The batched simulator does what the exact one does, up to rounding, for any network."""

import pytest
import torch
from safetensors.torch import load_file
from training import training

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


@pytest.mark.parametrize(("algorithm", "model", "data"), RUNS.values(), ids=RUNS)
def test_batched_equals_exact(tmp_path, algorithm, model, data):
    runs = [
        training(
            tmp_path / compute, algorithm, ranks=4, data=data, model={"name": model},
            train={"epochs": 2, "batch_size": 32, "steps_per_epoch": 6, "optimizer": SGD},
            topology={"name": "cycle"},
            parallel={"transport": "simulated", "simulation": {"compute": compute}},
        )
        for compute in ("exact", "batched")
    ]  # fmt: skip
    for run in runs:
        (run.folder / "networks.py").write_text(NETWORKS)
        run.finish()
    exact, batched = (load_file(run.job / "model.safetensors") for run in runs)
    for name, tensor in exact.items():
        torch.testing.assert_close(batched[name], tensor, rtol=1e-3, atol=1e-5)
    for one, other in zip(runs[0].history, runs[1].history, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=2e-3)
