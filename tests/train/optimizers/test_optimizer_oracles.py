"""Optimizers on one flat vector: steps as of torch and of the papers in float64, resumed and reset moments."""

import math
from collections import defaultdict

import pytest
import torch
from helpers.oracles.optimizers import OPTIMIZERS, RULES, TOLERANCE
from pydantic import ValidationError
from safetensors.torch import load, save
from torch import nn

from nnlo_lib.config.base import block_types
from nnlo_lib.config.optimizer import BaseOptimizerConfig, OptimizerConfig, RMSpropConfig
from nnlo_lib.train.optimizers import factory as pieces
from nnlo_lib.train.optimizers.factory import attach_optimizers
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
    attach_optimizers(replica, rule)
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


def owner(block, key):
    """Return the class whose key it is: all optimizers share those of the base class."""
    return BaseOptimizerConfig if key in BaseOptimizerConfig.model_fields else block


def test_each_setting_of_each_optimizer_has_two_values_with_an_oracle():
    values = defaultdict(set)
    for oracle in OPTIMIZERS.values():
        for key, value in oracle.rule:
            values[owner(type(oracle.rule), key), key].add(value)
    blocks = block_types(OptimizerConfig)
    known = {(owner(block, key), key) for block in blocks for key in block.model_fields if key != "name"}
    assert {each for each in known if len(values[each]) < 2} == set()


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
