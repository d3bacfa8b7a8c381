"""A model's regularization loss in whole trainings, and where it is refused."""

import pytest
import torch
from helpers.nnlo_command import nnlo, refused
from helpers.observed_training import store, watched
from safetensors.torch import load_file

from nnlo_lib.core.errors import UserError
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag

NET = """
import torch
from torch import nn

class Regularized(nn.Linear):
    def forward(self, images):
        return super().forward(images.flatten(1))

    def regularization_loss(self):
        return 0.125 * (self.weight.square().sum() + self.bias.square().sum())

def build(shape, classes):
    return Regularized(64, classes)

def plain(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


def trained(folder, manifest, model, decay=0.0, compute="exact"):
    """Return the weights, concatenated, and the history of a training on two simulated ranks."""
    train = {"epochs": 1, "precision": "float64", "accumulate": 1 if compute == "batched" else 3}
    train["optimizer"] = {"name": "sgd", "lr": 0.05, "weight_decay": decay}
    parallel = {"ranks": 2, "transport": "simulated", "simulation": {"compute": compute}}
    task = watched(folder, manifest, {}, train=train, parallel=parallel, model={"name": model})
    assert train_simulated(task, StopFlag())
    weights = load_file(folder / "model.safetensors")
    theta = torch.cat([weights[name].flatten() for name in sorted(weights)])
    return theta, read_rows(folder / "state/history.jsonl")


def test_the_square_of_the_weights_is_weight_decay(tmp_path):
    """The gradient of c |theta|^2 is 2 c theta, which is weight decay of SGD with 2 c; the loss is c |theta|^2 higher."""
    (tmp_path / "net.py").write_text(NET)
    manifest = store(tmp_path / "store")
    found, history = trained(tmp_path / "one", manifest, f"{tmp_path / 'net.py'}:build")
    wanted, plain = trained(tmp_path / "two", manifest, f"{tmp_path / 'net.py'}:plain", decay=0.25)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
    penalty = 0.125 * found.square().sum().item()
    assert penalty > 1e-4
    assert history[-1]["val_loss"] == pytest.approx(plain[-1]["val_loss"] + penalty, rel=1e-12)
    assert history[-1]["val_accuracy"] == plain[-1]["val_accuracy"]


def test_the_batched_simulator_refuses_it(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    manifest, message = store(tmp_path / "store"), r"parallel.simulation.compute: batched .* exact"
    with pytest.raises(UserError, match=f"regularization loss, which {message}"):
        trained(tmp_path / "one", manifest, f"{tmp_path / 'net.py'}:build", compute="batched")


OWN_PROBLEM = """
from nnlo_lib.problems.base import BatchLoss, Problem

class Own(Problem):
    names = ("loss",)

    def compute_loss(self, module, inputs, targets, step):
        loss = module(*inputs).square().mean()
        return BatchLoss(loss, lambda: self.measure(module, inputs, targets))

    def measure(self, module, inputs, targets):
        import torch
        return torch.tensor([len(targets), 0.0], dtype=torch.float64)
"""


@pytest.mark.processes
def test_a_problem_that_does_not_add_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET + OWN_PROBLEM)
    (tmp_path / "x.yaml").write_text("model: {name: net.py:build}\nproblem: {name: net.py:Own}\n")
    told = refused(nnlo("check", "x.yaml", folder=tmp_path))
    assert "the model has a regularization loss, which problem net.py:Own does not add" in told
    assert "adds_regularization = True" in told
