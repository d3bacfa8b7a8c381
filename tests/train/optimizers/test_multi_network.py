"""Several networks in one flat vector with one optimizer each, compared with separate optimizers per network."""

import pytest
import torch
from torch import nn

from nnlo_lib.config import optimizer as rules
from nnlo_lib.config.problem import GanConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.zoo.gan import Gan
from nnlo_lib.train.optimizers.factory import attach_optimizers
from nnlo_lib.train.replica.replica import Replica

ADAM = rules.AdamConfig(lr=0.01, beta1=0.5)
SGD = rules.SGDConfig(lr=0.1, momentum=0.9)


def module() -> Gan:
    torch.manual_seed(4)
    return Gan(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), latent=2)


def replica(rule=ADAM, **problem) -> Replica:
    found = Replica(module())
    attach_optimizers(found, rule, GanConfig(**problem))
    return found


def gradient(step: int, resting: bool = False) -> torch.Tensor:
    values = torch.randn(30, generator=torch.Generator().manual_seed(step))
    values[:9] *= not resting  # the 2 * 3 + 3 parameters of the generator
    return values


def steps(replica: Replica, numbers, lr: float | None = None) -> None:
    for step in numbers:
        replica.grad.copy_(gradient(step, resting=step % 3 != 2))
        if lr is not None:
            replica.lr = lr
        replica.step()


def test_each_network_steps_as_if_it_were_alone():
    ours, alone = replica(generator_optimizer=SGD), module()
    critic = torch.optim.Adam(alone.critic.parameters(), lr=0.01, betas=(0.5, 0.999))
    generator = torch.optim.SGD(alone.generator.parameters(), lr=0.1, momentum=0.9)
    for step in range(9):
        flat, resting = gradient(step, resting=step % 3 != 2), step % 3 != 2
        ours.grad.copy_(flat)
        ours.step()
        pieces = flat.split([each.numel() for each in alone.parameters()])
        for parameter, piece in zip(alone.parameters(), pieces, strict=True):
            parameter.grad = piece.view_as(parameter)
        critic.step()
        if not resting:
            generator.step()
        expected = torch.cat([parameter.detach().flatten() for parameter in alone.parameters()])
        torch.testing.assert_close(ours.theta, expected, rtol=1e-5, atol=1e-7)


KINDS = "RMSprop", "Adadelta", "Adagrad", "NAdam", "LARS", "LAMB"
RULES = (SGD, ADAM, *(getattr(rules, f"{kind}Config")() for kind in KINDS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_is_saved_goes_on_to_the_same_bits(rule):
    through, cut, resumed = (replica(rule, generator_optimizer=ADAM, weight_clip=0.2) for _ in range(3))
    steps(through, range(12))
    steps(cut, range(7))
    resumed.load_state(cut.state())
    steps(resumed, range(7, 12))
    assert torch.equal(resumed.theta, through.theta)
    assert resumed.state().keys() == through.state().keys()
    assert all(torch.equal(each, through.state()[name]) for name, each in resumed.state().items())


def test_the_critics_weights_are_bounded():
    ours = replica(weight_clip=0.05)
    steps(ours, range(6))
    assert ours.theta[9:].abs().max() == pytest.approx(0.05)
    assert ours.theta[:9].abs().max() > 0.05


def test_one_learning_rate_scales_all():
    half = ADAM.model_copy(update={"lr": 0.005}), SGD.model_copy(update={"lr": 0.05})
    ours, halves = replica(generator_optimizer=SGD), replica(half[0], generator_optimizer=half[1])
    assert ours.lr == 0.01
    steps(ours, range(6), lr=0.005)
    steps(halves, range(6))
    assert ours.lr == 0.005
    torch.testing.assert_close(ours.theta, halves.theta)


class Strange(Gan):
    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 3), nn.Linear(3, 1), latent=2)
        self.encoder = nn.Linear(3, 2)


def without(name: str) -> nn.Module:
    found = module()
    delattr(found, name)
    return found


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Strange(), "parameters outside its networks"),
        (without("latent"), "attribute `latent`, the length of the generator's noise"),
        (without("critic"), "no trainable parameter whose name starts with 'critic.'"),
    ],
)
def test_models_that_are_no_gan(model, sentence):
    with pytest.raises(UserError, match=sentence):
        attach_optimizers(Replica(model), ADAM, GanConfig())
