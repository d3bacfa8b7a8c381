"""Optimizers on one flat vector: resumed and reset moments, layouts, and trainings with every algorithm."""

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import rows, task
from helpers.oracles.optimizers import RULES
from helpers.training_process import StopAfter
from safetensors.torch import load, save
from torch import nn

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.core.errors import UserError
from nnlo_lib.reliability.chaos.bitwise_comparison import find_differences
from nnlo_lib.train.optimizers import chunked as pieces
from nnlo_lib.train.optimizers.factory import attach_optimizer
from nnlo_lib.train.optimizers.parameter_layout import layout_of, layout_of_prefix
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.replica.replica import Replica

STEPS = 20


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Reduce the chunk size, so that the vectors of these tests have several chunks, the last one smaller."""
    monkeypatch.setattr(pieces, "CHUNK_SIZE", 50)


def model():
    """Return a float64 network with parameters of 4, 2 and 1 dimensions, one of which is zero."""
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    nn.init.zeros_(layers[-1].weight)
    return nn.Sequential(*layers).double()


def equipped(rule):
    replica = Replica(model())
    attach_optimizer(replica, rule)
    return replica


def gradients(size):
    """Return gradients of shape (STEPS, size); the first parameter has a zero gradient in the first step."""
    drawn = torch.randn(STEPS, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn[0, :72] = 0
    return drawn


def follow(replica, steps=slice(None)):
    for gradient in gradients(len(replica.theta))[steps]:
        replica.grad.copy_(gradient)
        replica.step()
    return replica.theta


def flat(tensors):
    return torch.cat([tensor.detach().as_strided((tensor.numel(),), (1,)) for tensor in tensors])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("done", [0, 1, 7])
def test_resumes_to_the_same_bits(rule, done):
    whole, first, second = equipped(rule), equipped(rule), equipped(rule)
    follow(first, slice(done))
    second.load_state(load(save({name: tensor.clone() for name, tensor in first.state().items()})))
    assert torch.equal(follow(second, slice(done, None)), follow(whole))
    for name, tensor in whole.state().items():
        assert torch.equal(second.state()[name], tensor)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_reset_moments_begin_anew(rule):
    one, other = equipped(rule), equipped(rule)
    follow(one)
    other.theta.copy_(one.theta)
    one.lr = other.lr = rule.lr / 2
    one.reset_optimizer()
    assert torch.equal(follow(one), follow(other))


def test_layout_has_each_trained_parameter():
    replica = Replica(model())
    named = dict(replica.module.named_parameters())
    assert [slot.name for slot in replica.layout] == list(named)
    for slot in replica.layout:
        values = replica.theta[slot.start : slot.stop]
        assert torch.equal(values, flat([named[slot.name]]))
        assert slot.shape == named[slot.name].shape
    assert replica.layout[-1].stop == len(replica.theta)
    network = model()
    network[0].weight.requires_grad_(False)
    assert layout_of(network.named_parameters())[0].name == "0.bias"


def test_part_of_a_layout():
    layout = layout_of(nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1)}).named_parameters())
    where, own = layout_of_prefix(layout, "b.")
    assert where == slice(9, 13)
    assert [(slot.name, slot.start, slot.numel) for slot in own] == [("b.weight", 0, 3), ("b.bias", 3, 1)]
    with pytest.raises(UserError, match="no trainable parameter whose name starts with 'c'"):
        layout_of_prefix(layout, "c")
    with pytest.raises(UserError, match="not contiguous"):
        layout_of_prefix((layout[0], layout[2], layout[3]._replace(name="a.other")), "a.")


SERVED = ("downpour", "easgd")  # run synchronously
NAMES = sorted({rule.name for rule in RULES.values()})


@pytest.mark.exhaustive
@pytest.mark.parametrize("rule", NAMES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_rule_goes_with_every_algorithm(tmp_path, manifest, name, rule):
    """The rule is that of the workers and, with downpour, of the server; test_resume.py has some of the pairs."""
    settings = {
        "algorithm": {"name": name} | ({"synchronous": True} if name in SERVED else {}),
        "topology": {"name": "cycle", "weights": "lazy_metropolis"},
        "train": {"optimizer": {"name": rule, "lr": 0.001}, "schedule": {"name": "constant"}},
    }
    whole, parts = (task(tmp_path / folder, manifest, name, settings) for folder in ("whole", "parts"))
    assert train_simulated(whole, StopFlag())
    while not train_simulated(parts, StopAfter(30)):
        pass
    assert all(np.isfinite(row["val_loss"]) for row in rows(parts))
    if not ALGORITHMS[name].asynchronous or name in SERVED:
        assert find_differences(parts.folder, whole.folder) == []
