"""Compiled models compute the same results as plain models and write them into the flat vectors of the replica."""

import pytest
import torch
from helpers.algorithm_trainings import interrupt, measured, task
from helpers.training_here import simulate
from pydantic import ValidationError
from torch import nn

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.train.replica.model_build import compile_module
from nnlo_lib.train.replica.replica import Replica


def test_without_a_compiler_a_sentence_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        compile_module(nn.Linear(2, 2), "cpu")


def test_not_with_normalization_over_ranks():
    run = {"train": {"compile": True}, "parallel": {"sync_batch_norm": True}}
    with pytest.raises(ValidationError, match="a compiled model cannot wait for other ranks"):
        Experiment.model_validate(run)


@pytest.mark.exhaustive
def test_gradients_land_in_the_flat_vector():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)]
    replica = Replica(nn.Sequential(*layers).double())
    replica.network = compile_module(replica.module, "cpu")
    assert next(iter(replica.network.parameters())) is next(replica.module.parameters())
    before, statistics = replica.theta.clone(), replica.buffers.clone()
    for count in (8, 3):
        inputs, labels = torch.randn(count, 2, 6, 6, dtype=torch.float64), torch.randint(3, (count,))
        grads = []
        for network in (replica.module, replica.network):
            replica.buffers.copy_(statistics)
            replica.backward(nn.functional.cross_entropy(network(inputs), labels))
            grads.append(replica.grad.clone())
            assert not torch.equal(replica.buffers, statistics), (
                "batch normalization goes on in the flat buffers"
            )
        torch.testing.assert_close(*grads, rtol=0, atol=1e-12)
    assert torch.equal(before, replica.theta)
    assert all(each.grad.untyped_storage().data_ptr() == replica.grad.untyped_storage().data_ptr()
               for each in replica.module.parameters())  # fmt: skip


@pytest.mark.exhaustive
def test_a_training_resumes_to_the_same_bits(tmp_path, manifest, monkeypatch):
    """A training that resumes within an epoch compiles again and sees the batch shapes in another order.

    The shapes differ because the last batch is smaller.
    """

    def anew(module, device):
        torch._dynamo.reset()
        return compile_module(module, device)

    monkeypatch.setattr("nnlo_lib.train.replica.recorded_passes.compile_module", anew)
    settings = {"train": {"compile": True}}
    whole, parts = (task(tmp_path / name, manifest, "allreduce", settings) for name in ("whole", "parts"))
    simulate(whole)
    interrupt(parts)
    assert measured(parts) == measured(whole)
    plain = simulate(task(tmp_path / "plain", manifest, "allreduce", {}))
    for ours, reference in zip(measured(whole)[0], measured(plain)[0], strict=True):
        # Compiled dropout draws other numbers.
        assert ours["val_loss"] == pytest.approx(reference["val_loss"], rel=1e-2)
