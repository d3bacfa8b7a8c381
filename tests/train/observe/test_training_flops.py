"""FLOPs of training steps, compared with sums over the matrix products of two small networks."""

import pytest
import torch
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.models.zoo.gan import Gan
from nnlo_lib.problems.factory import build_problem
from nnlo_lib.train.observe.training_flops import training_flops

SAMPLES = torch.zeros(2, 5)


def small_gan():
    """Return a generator 3 -> 5 and a critic 5 -> 4 -> 1; a product with an a x b matrix costs 2ab per sample."""
    critic = nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False))
    return Gan(nn.Linear(3, 5, bias=False), critic, 3)


def problem(**settings):
    return build_problem(
        Run.model_validate({"model": {"name": "wgan"}, "loss": "non_saturating", "problem": settings})
    )


@pytest.mark.parametrize("every", [1, 2, 5])
def test_steps_of_a_gan(every):
    generator, first, second = 30, 40, 8
    critic = first + second
    # Critic: forward passes of real and generated samples; backward, no gradient of its inputs is needed.
    of_critic = generator + 2 * critic + 2 * (critic + second)
    # Generator: through the critic to the samples, and the generator's weights.
    of_generator = critic + critic + generator
    gan = problem(name="gan", critic_steps=every)
    found = training_flops(small_gan(), gan, (SAMPLES,), torch.zeros(2), every)
    assert found == of_critic + of_generator / every


def test_a_gradient_penalty_costs_a_pass_and_its_gradient():
    without = training_flops(small_gan(), problem(name="gan"), (SAMPLES,), torch.zeros(2))
    found = training_flops(
        small_gan(), problem(name="gan", gradient_penalty=10.0), (SAMPLES,), torch.zeros(2)
    )
    assert found >= without + 2 * 48


def test_the_model_and_the_random_stream_do_not_change():
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    classifier = build_problem(Run.model_validate({"model": {"name": "simplecnn"}}))
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    assert training_flops(module, classifier, (SAMPLES,), torch.zeros(2, dtype=torch.int64))
    assert torch.equal(torch.rand(4), expected)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert not any(layer.training for layer in module.modules())
    assert all(weight.grad is None for weight in module.parameters())


def test_a_loss_that_cannot_be_computed_is_unknown():
    """The labels do not fit the loss."""
    classifier = build_problem(Run.model_validate({"model": {"name": "simplecnn"}}))
    assert training_flops(nn.Linear(5, 3), classifier, (SAMPLES,), torch.zeros(7, 2)) is None
