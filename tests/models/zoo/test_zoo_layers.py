"""Layers of the model zoo: values compared with hand computation, float64 gradients with finite differences."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool2d

from nnlo_lib.models.blocks import Branches, PairPool
from nnlo_lib.models.zoo.coordinate_networks import Sine
from nnlo_lib.models.zoo.gan import Heads
from nnlo_lib.models.zoo.inception import Dense
from nnlo_lib.models.zoo.particle_physics import Interaction, jedi_net
from nnlo_lib.models.zoo.recurrent import GRU, Gates, Texts
from nnlo_lib.models.zoo.resnet import Residual, Subsample, Wide

LAYERS = {
    "sine": (lambda: Sine(3, 4, 5.0, 0.5), (2, 3)),
    "interaction": (lambda: Interaction(nn.Sequential(nn.Linear(6, 4), nn.SELU())), (2, 4, 3)),
    "jedi_net": (lambda: jedi_net((2, 3), 2, hidden=4, effects=2, outputs=2), (2, 2, 3)),
    "gru": (lambda: GRU(3, 4), (2, 5, 3)),
    "lstm": (lambda: Gates(3, 4), (2, 5, 3)),
    "residual": (lambda: Residual(nn.Conv2d(2, 2, 3, padding=1), nn.Identity()), (2, 2, 4, 4)),
    "subsample": (lambda: Subsample(2), (2, 3, 5, 4)),
    "wide": (lambda: Wide(2, 3, 2, 0.0), (2, 2, 4, 4)),
    "dense": (lambda: Dense(2, 1, bottleneck=True, dropout=0.0), (2, 2, 3, 3)),
    "branches": (lambda: Branches([nn.Conv2d(2, 1, 1), nn.Conv2d(2, 3, 3, padding=1)]), (2, 2, 4, 4)),
    "heads": (lambda: Heads(nn.Flatten(), 8), (2, 1, 2, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients(name):
    """Gradients are correct with respect to the inputs and to every parameter."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().double()
    names, values = zip(*layer.named_parameters(), strict=True) if [*layer.parameters()] else ((), ())

    def outputs(inputs, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (inputs,))

    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(outputs, (inputs, *values))


def test_sine():
    layer = Sine(2, 1, 3.0, 0.5)
    nn.init.constant_(layer.linear.weight, 0.25)
    nn.init.constant_(layer.linear.bias, 0.1)
    assert layer(torch.tensor([[1.0, 2.0]])).item() == pytest.approx(math.sin(3 * 0.85), abs=1e-6)


def test_phases_of_sines_begin_below_their_bound():
    phases = 54 * Sine(2, 200, 54.0, 0.1, phase=0.04).linear.bias.detach().abs()
    assert 0.03 < phases.max() <= 0.04


def test_interaction_is_the_sum_over_the_others():
    """The output for each receiver is the sum of the effects of all other particles."""
    effect = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    particles = torch.randn(2, 5, 2)
    found = Interaction(effect)(particles)
    for sample in range(2):
        for receiver in range(5):
            others = [sender for sender in range(5) if sender != receiver]
            pairs = [torch.cat([particles[sample, receiver], particles[sample, sender]]) for sender in others]
            assert torch.allclose(found[sample, receiver], sum(effect(pair) for pair in pairs), atol=1e-6)


def test_jedi_does_not_see_the_order_of_particles():
    torch.manual_seed(0)
    model, jets = jedi_net((3, 6), 4), torch.randn(2, 3, 6)
    assert torch.allclose(model(jets), model(jets[:, :, torch.randperm(6)]), atol=1e-5)


def test_gru_as_keras_writes_it():
    torch.manual_seed(0)
    layer, series = GRU(3, 4).double(), torch.randn(2, 6, 3, dtype=torch.float64)
    nn.init.normal_(layer.inputs.bias)
    kernel, bias = layer.inputs.weight.detach().numpy().T, layer.inputs.bias.detach().numpy()
    recurrent = np.hstack([layer.gates.weight.detach().numpy().T, layer.candidate.weight.detach().numpy().T])
    state = np.zeros((2, 4))
    for given in series.numpy().transpose(1, 0, 2):
        x = given @ kernel + bias
        update = np.clip(0.2 * (x[:, :4] + state @ recurrent[:, :4]) + 0.5, 0, 1)
        reset = np.clip(0.2 * (x[:, 4:8] + state @ recurrent[:, 4:8]) + 0.5, 0, 1)
        candidate = np.tanh(x[:, 8:] + (reset * state) @ recurrent[:, 8:])
        state = update * state + (1 - update) * candidate
    assert np.allclose(layer(series).detach().numpy(), state, atol=1e-12)


def test_lstm_by_hand():
    torch.manual_seed(0)
    layer, series = Gates(3, 4).double(), torch.randn(2, 6, 3, dtype=torch.float64)
    weight, recurrent = (each.detach().numpy().T for each in (layer.weight_ih_l0, layer.weight_hh_l0))
    assert not weight[-1].any()  # the initial bias is 0
    state, cell = np.zeros((2, 4)), np.zeros((2, 4))
    for step, given in enumerate(series.numpy().transpose(1, 0, 2)):
        sums = np.hstack([given, np.ones((2, 1))]) @ weight + state @ recurrent
        kept, forgotten, candidate, shown = np.split(sums, 4, 1)
        cell = _sigmoid(forgotten) * cell + _sigmoid(kept) * np.tanh(candidate)
        state = _sigmoid(shown) * np.tanh(cell)
        assert np.allclose(layer(series)[:, step].detach().numpy(), state, atol=1e-12)


def _sigmoid(values):
    return 1 / (1 + np.exp(-values))


def test_what_fills_a_text_up_does_not_count():
    torch.manual_seed(0)
    model = Texts(20, 4, 2, dropout=0.0)
    text = torch.tensor([[3, 7, 11]])
    assert torch.allclose(model(text), model(nn.functional.pad(text, (0, 4))), atol=1e-6)
    assert model(torch.zeros(1, 5)).isfinite().all()  # an empty text


def test_subsample():
    images = torch.arange(2.0 * 9).reshape(1, 2, 3, 3)
    found = Subsample(1)(images)
    assert torch.equal(found[0], torch.tensor([[[0, 2], [6, 8]], [[9, 11], [15, 17]], [[0, 0], [0, 0.0]]]))


@pytest.mark.parametrize("size", [(2, 3, 24, 24), (1, 1, 5, 7), (4, 2, 2, 2)])
@pytest.mark.parametrize("values", [3, 1000])  # few values give many ties
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pair_pool_equals_max_pooling(size, values, layout):
    torch.manual_seed(values)
    images = torch.randint(values, size).float().contiguous(memory_format=layout).requires_grad_()
    wanted = max_pool2d(images, 2)
    weights = torch.randn_like(wanted)
    found = PairPool()(images)
    assert torch.equal(found, wanted)
    (expected,), (gradient,) = (torch.autograd.grad(output, images, weights) for output in (wanted, found))
    assert torch.equal(gradient, expected)
