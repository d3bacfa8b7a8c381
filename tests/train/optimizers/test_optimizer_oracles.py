"""Parameters after steps of each optimizer, equal to those of torch and of the papers in float64."""

import math
from collections import defaultdict

import pytest
import torch
from helpers.oracles.optimizers import OPTIMIZERS, TOLERANCE, random_oracle
from pydantic import ValidationError
from torch import nn

from nnlo_lib.config.base import block_types
from nnlo_lib.config.optimizer import OptimizerConfig, RMSpropConfig
from nnlo_lib.train.optimizers import chunked as pieces
from nnlo_lib.train.optimizers.factory import attach_optimizer
from nnlo_lib.train.replica.replica import Replica

STEPS = 12


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Reduce the chunk size, so that the vectors of these tests have several chunks, the last one smaller."""
    monkeypatch.setattr(pieces, "CHUNK_SIZE", 50)


class Network(nn.Module):
    """Network with parameters of 4, 2 and 1 dimensions, one of which is zero; `side` is not in every pass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.last = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(64, 3)
        self.side = nn.Linear(64, 3)
        nn.init.zeros_(self.last.weight)
        self.double()

    def forward(self, inputs, with_side):
        features = self.norm(self.conv(inputs)).relu().flatten(1)
        return self.last(features) + (self.side(features) if with_side else 0)


def equipped(rule):
    replica = Replica(Network())
    attach_optimizer(replica, rule)
    return replica


def steps_of(rule, replica):
    """Return rates and gradients: a parameter without gradient in some steps, all without in one, and a rate of 0."""
    drawn = torch.Generator().manual_seed(1)
    parameters = list(replica.module.parameters())
    steps = []
    for step in range(STEPS):
        gradients = [torch.randn(each.shape, generator=drawn, dtype=torch.float64) for each in parameters]
        for resting in (0,) if step == 0 else range(len(parameters)) if step == 5 else (step % 7,):
            gradients[resting].zero_()
        steps.append((0.0 if step == 8 else rule.lr * (1.2 + math.sin(step)), gradients))
    return steps


def assert_follows(oracle):
    replica = equipped(oracle.rule)
    parameters = list(replica.module.parameters())
    begun = [each.detach().clone() for each in parameters]
    steps = steps_of(oracle.rule, replica)
    for rate, gradients in steps:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad.copy_(gradient)
        replica.lr = rate
        replica.step()
    for parameter, expected in zip(parameters, oracle.follow(begun, steps), strict=True):
        torch.testing.assert_close(parameter.detach(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("oracle", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizers_follow_their_references(oracle):
    assert_follows(oracle)


@pytest.mark.parametrize("number", range(60))
def test_optimizers_with_random_settings_follow_their_references(number):
    assert_follows(random_oracle(number))


@pytest.mark.parametrize("name", ["sgd, momentum", "adamw", "nadam", "lars", "lamb"])
def test_a_parameter_outside_a_pass_has_the_gradient_zero(name):
    """As with optimizer.zero_grad(set_to_none=False) of torch."""
    oracle = OPTIMIZERS[name]
    replica = equipped(oracle.rule)
    parameters = list(replica.module.parameters())
    begun, steps = [each.detach().clone() for each in parameters], []
    for step in range(6):
        inputs = torch.randn(5, 2, 6, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        replica.backward(replica.module(inputs, with_side=step in (1, 4)).square().mean())
        steps.append((replica.lr, [each.grad.clone() for each in parameters]))
        assert bool(replica.module.side.weight.grad.any()) == (step in (1, 4))
        replica.step()
    for parameter, expected in zip(parameters, oracle.follow(begun, steps), strict=True):
        torch.testing.assert_close(parameter.detach(), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_centered_rmsprop_without_memory_is_refused():
    """Its first step would be NaN: the root of a variance of 0 that is rounded."""
    with pytest.raises(ValidationError, match="requires rho > 0"):
        RMSpropConfig(centered=True, rho=0.0)


def test_each_setting_of_each_optimizer_has_two_values_with_an_oracle():
    values = defaultdict(set)
    for oracle in OPTIMIZERS.values():
        for key, value in oracle.rule:
            values[type(oracle.rule), key].add(value)
    blocks = block_types(OptimizerConfig)
    known = {(block, key) for block in blocks for key in block.model_fields if key != "name"}
    assert {each for each in known if len(values[each]) < 2} == set()
