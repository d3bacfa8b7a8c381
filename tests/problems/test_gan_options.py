"""Options of GAN training as in NNLO and Theano-MPI, compared with computations from their descriptions."""

from itertools import islice

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from nnlo_lib.config import Run
from nnlo_lib.config.problem import GanConfig
from nnlo_lib.models.zoo.gan import Gan
from nnlo_lib.problems.adversarial.gan import GanProblem
from nnlo_lib.problems.adversarial.gan_losses import GAN_LOSSES
from nnlo_lib.problems.adversarial.gan_turns import gan_turn
from nnlo_lib.problems.adversarial.shower_gan import CalorimeterGanProblem

NNLO_SUM = [0.0018, -0.023, 0.11, -0.28, 2.21]


class ShowerCritic(nn.Module):
    """Score and energy from a linear layer, and the sum of the cells."""

    def __init__(self):
        super().__init__()
        self.score, self.energy = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, showers):
        return self.score(showers), self.energy(showers), showers.sum(1, keepdim=True)


def networks(critic=None):
    torch.manual_seed(3)
    critic = critic or nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    return Gan(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)), critic, latent=3).double()


def samples(count=40):
    return torch.rand(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def trained(module, step=0, metrics=("critic_loss",), targets=None, problem=GanProblem, **config):
    """Return the sums of one step from seed 11; the gradients stay in the module."""
    module.zero_grad()
    torch.manual_seed(11)
    made = problem(GAN_LOSSES["non_saturating"], metrics, GanConfig(**config))
    loss, sums = made.compute_loss(module, (samples(),), targets, step)
    loss.backward()
    return sums()


def noise(count=40):
    return torch.randn(count, 3, dtype=torch.float64)


def assert_gradients(network, loss):
    expected = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-13)


def rests(network):
    return all(each.grad is None or not each.grad.any() for each in network.parameters())


def test_in_half_steps_one_network_trains_at_a_time():
    module, config = networks(), {"half_steps": True, "generator_batches": 2}
    for step in range(8):
        trained(module, step, **config)
        torch.manual_seed(11)
        fake, part = module.generator(noise()), step % 4
        if part == 0:
            assert_gradients(
                module.critic, cross_entropy(module.critic(samples()), torch.ones(40, 1).double())
            )
        if part == 1:
            scores = module.critic(fake.detach())
            assert_gradients(module.critic, cross_entropy(scores, torch.zeros_like(scores)))
        if part >= 2:
            scores = module.critic(fake)
            assert_gradients(module.generator, cross_entropy(scores, torch.ones_like(scores)))
        assert (rests(module.critic), rests(module.generator)) == (part >= 2, part < 2)


def test_flipped_labels_are_targets_of_the_cross_entropy():
    module = networks()
    sums = trained(module, label_flips=0.2)
    torch.manual_seed(11)
    fake = module.generator(noise())
    wrong = (torch.rand(40, 1, dtype=torch.float64) < 0.2).double()
    assert 0 < wrong.sum() < 20
    loss = cross_entropy(module.critic(samples()), 1 - wrong)
    loss = loss + cross_entropy(module.critic(fake.detach()), wrong)
    assert_gradients(module.critic, loss)
    assert float(sums[2]) / 40 == pytest.approx(float(loss.detach()))
    scores = module.critic(fake)
    assert_gradients(module.generator, cross_entropy(scores, torch.ones_like(scores)))


def test_two_batches_of_the_generator_are_one_of_twice_the_size():
    module = networks()
    trained(module, generator_batches=2)
    torch.manual_seed(11)
    scores = module.critic(module.generator(torch.cat([noise(), noise()])))
    assert_gradients(module.generator, cross_entropy(scores, torch.ones_like(scores)))


@pytest.mark.parametrize("sum_weight", [None, 0.5])
def test_random_energies_and_expected_sums(sum_weight):
    module, energies = networks(ShowerCritic()), torch.linspace(0.2, 4, 40, dtype=torch.float64)
    config = {"energy_weight": 5.0, "sum_weight": sum_weight, "energy_range": (0.1, 5)}
    config["sum_polynomial"] = NNLO_SUM
    trained(module, targets=energies, problem=CalorimeterGanProblem, **config)
    torch.manual_seed(11)
    draw = noise()
    drawn = 0.1 + 4.9 * torch.rand(40, 1).double()
    assert 0.1 <= float(drawn.min()) < float(drawn.max()) <= 5
    score, energy, total = module.critic(module.generator(draw * drawn))
    expected = torch.tensor(np.polyval(NNLO_SUM, drawn.numpy()) * drawn.numpy())
    loss = cross_entropy(score, torch.ones_like(score)) + 5 * (energy / drawn - 1).abs().mean()
    loss = loss + (sum_weight or 5) * (total / expected - 1).abs().mean()
    for parameter, gradient in zip(
        module.generator.parameters(),
        torch.autograd.grad(loss, list(module.generator.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-8)


def test_the_figure_of_merit_is_the_gap_of_the_mean_losses():
    module, real = networks(), samples()
    problem = GanProblem(GAN_LOSSES["non_saturating"], ("loss_gap",), GanConfig())
    sums = sum(problem.measure(module, (part,), None) for part in (real[:25], real[25:]))
    parts = [problem.measure(module, (part,), None)[2] / len(part) for part in (real[:25], real[25:])]
    mean = float((25 * parts[0] + 15 * parts[1]) / 40)
    assert problem.means(sums)["loss_gap"] == pytest.approx(abs(mean))
    one = problem.measure(module, (real,), None)
    scores = module.critic(real), module.critic(module.generator(fixed(40)))
    both, labels = torch.cat(scores), torch.cat([torch.ones(40, 1), torch.zeros(40, 1)]).double()
    gap = cross_entropy(scores[1], torch.ones(40, 1).double()) - cross_entropy(both, labels)
    assert problem.means(one)["loss_gap"] == pytest.approx(abs(float(gap.detach())))


def fixed(count):
    from nnlo_lib.problems.adversarial.gan import fixed_noise

    return fixed_noise(count, 3).double()


def counted(steps, updates, every, usual):
    """Yield whether the generator trains, by counting steps as in the loop of a WGAN."""
    update = 0
    while True:
        is_long = update < updates or (every is not None and update % every == 0)
        for number in range(1, (steps if is_long else usual) + 1):
            yield number == (steps if is_long else usual)
        update += 1


@pytest.mark.parametrize(
    ("steps", "updates", "every", "usual"),
    [(50, 25, 500, 2), (5, 3, 4, 2), (5, 4, 4, 2), (3, 1, None, 1), (1, 2, 3, 4), (2, 9, 1, 5)],
)
def test_the_critic_warms_up(steps, updates, every, usual):
    warm_up = {"steps": steps, "updates": updates, "every": every}
    config = GanConfig(critic_steps=usual, critic_warm_up=warm_up)
    found = [gan_turn(config, step).generator for step in range(2500)]
    assert found == list(islice(counted(steps, updates, every, usual), 2500))
    assert found.index(True) == config.first_generator_step


def run(algorithm="allreduce", ranks=2, **problem):
    graph = {"topology": {"name": "cycle"}} if algorithm == "dsgt" else {}
    return Run.model_validate(
        {"problem": {"name": "gan", **problem}, "model": {"name": "wgan"}, "loss": "least_squares",
         "algorithm": {"name": algorithm}, "parallel": {"ranks": ranks}, **graph}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"half_steps": True, "critic_steps": 2}, "cannot be combined with critic_steps; remove one of them"),
        ({"half_steps": True, "critic_warm_up": {}}, "cannot be combined with critic_warm_up"),
        ({"half_steps": True, "gradient_penalty": 10}, "cannot be combined with gradient_penalty"),
        ({"sum_polynomial": [1]}, "requires energy_weight; set `problem.energy_weight: 5`"),
        ({"sum_weight": 1}, "requires energy_weight"),
        ({"energy_weight": 5, "energy_range": [0.1, 5]}, "requires sum_polynomial"),
        ({"energy_weight": 5, "energy_range": [5, 1], "sum_polynomial": [1]}, r"the smaller one first, not \[5, 1\]"),
        ({"algorithm": "dsgt", "half_steps": True}, "would move the resting network in every step; set `problem.half_steps: false`"),
        ({"algorithm": "dsgt", "critic_warm_up": {}}, "move the generator in every step; set `problem.critic_warm_up: null`"),
    ],
)  # fmt: skip
def test_refused_combinations(changes, sentence):
    with pytest.raises(ValidationError, match=sentence):
        run(**changes)


def test_the_gap_is_a_metric_of_a_gan_that_decreases():
    plain = run(half_steps=True, generator_batches=2, label_flips=0.05)
    assert "loss_gap" not in plain.metrics
    from nnlo_lib.config.metrics import metric_direction

    assert metric_direction("val_loss_gap") == "smaller"
