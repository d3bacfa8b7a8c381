"""GAN training: losses, gradients and options, compared with separate computations from their descriptions."""

from itertools import islice

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from nnlo_lib.config import Run
from nnlo_lib.config.metrics import metric_direction
from nnlo_lib.config.problem import GanConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.zoo.gan import Gan
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.gan import (
    GAN_LOSSES,
    CalorimeterGanProblem,
    GanProblem,
    apply_frozen,
    fixed_noise,
    gan_turn,
    gradient_penalty,
)

METRICS = ("distance", "critic_loss", "generator_loss")
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


def assert_gradients(network, loss, rtol=1e-10, atol=1e-13):
    expected = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True, retain_graph=True)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", GAN_LOSSES)
@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_one_backward_pass_gives_each_network_the_gradient_of_its_own_loss(name, penalty):
    module, real = networks(), samples(7)
    torch.manual_seed(11)
    problem = GanProblem(GAN_LOSSES[name], METRICS, GanConfig(gradient_penalty=penalty))
    loss, sums = problem.compute_loss(module, (real,), None, step=0)
    loss.backward()

    torch.manual_seed(11)  # the same noise and the same interpolation points
    fake = module.generator(noise(7))
    critic_loss = GAN_LOSSES[name](module.critic(real), module.critic(fake.detach()))[0]
    if penalty:
        critic_loss = critic_loss + penalty * gradient_penalty(module.critic, real, fake.detach())
    generator_loss = GAN_LOSSES[name](module.critic(real), module.critic(fake))[1]
    assert_gradients(module.critic, critic_loss)
    assert_gradients(module.generator, generator_loss)
    distance = module.critic(real).mean() - module.critic(fake).mean()
    measured = torch.stack([critic_loss + generator_loss, distance, critic_loss, generator_loss])
    torch.testing.assert_close(sums(), 7 * torch.cat([torch.ones(1), measured.detach()]).double())


def test_penalty_against_finite_differences():
    """Finite differences give the slopes in the samples and the gradient of the penalty in the critic's parameters."""
    module, real, fake = networks(), samples(7), samples(7).flip(0) - 0.3
    critic, parameter = module.critic, module.critic[0].weight

    def penalty():
        torch.manual_seed(2)
        return gradient_penalty(critic, real, fake)

    torch.manual_seed(2)
    between = torch.lerp(fake, real, torch.rand(7, 1, dtype=torch.float64))
    step = 1e-6
    slopes = [
        (critic(between + step * axis) - critic(between - step * axis)) / (2 * step)
        for axis in torch.eye(4, dtype=torch.float64)
    ]
    norms = torch.cat(slopes, 1).square().sum(1).sqrt()
    assert float(penalty().detach()) == pytest.approx(float((norms - 1).square().mean().detach()), rel=1e-8)
    (gradient,) = torch.autograd.grad(penalty(), parameter)
    for place in ((0, 0), (3, 2), (5, 1)):
        values = []
        for change in (step, -2 * step):
            parameter.data[place] += change
            values.append(float(penalty().detach()))
        parameter.data[place] += step
        assert float(gradient[place]) == pytest.approx(
            (values[0] - values[1]) / (2 * step), rel=1e-6, abs=1e-9
        )


def test_a_frozen_network_keeps_its_statistics_and_gets_no_gradient():
    module = networks(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)))
    before = {name: each.clone() for name, each in module.critic.named_buffers()}
    inputs = samples().requires_grad_()
    scores = apply_frozen(module.critic, inputs)
    scores.square().sum().backward()
    assert inputs.grad is not None
    assert all(parameter.grad is None for parameter in module.critic.parameters())
    assert all(torch.equal(each, before[name]) for name, each in module.critic.named_buffers())
    assert torch.equal(scores, module.critic(samples()))


def test_measuring_draws_the_same_noise_each_time():
    module, problem = networks(), GanProblem(GAN_LOSSES["least_squares"], METRICS, GanConfig())
    first = problem.measure(module, (samples(),), None)
    torch.manual_seed(99)
    assert torch.equal(first, problem.measure(module, (samples(),), None))
    assert problem.means(torch.zeros(5, dtype=torch.float64)) == {}


def test_showers_for_given_energies():
    """The calorimeter GAN multiplies noise by energy; both losses contain relative errors of energy and cell sum."""
    module = build_model("calorimeter_gan", {"dropout": 0.0}, (1, 25, 25, 25), 0, seed=1)
    showers = torch.rand(3, 1, 25, 25, 25, generator=torch.Generator().manual_seed(2))
    energies = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    problem = CalorimeterGanProblem(GAN_LOSSES["non_saturating"], METRICS, GanConfig(energy_weight=5.0))
    torch.manual_seed(7)
    loss, sums = problem.compute_loss(module, (showers,), energies, step=0)
    assert float(loss.detach()) == pytest.approx(float(sums()[1]) / 3, rel=1e-5)
    loss.backward()

    torch.manual_seed(7)
    made = module.generator(torch.randn(3, 200) * energies.float()[:, None])
    score, energy, total = module.critic(made)
    expected = nn.functional.softplus(-score).mean()
    expected = expected + 5 * (energy[:, 0] / energies - 1).abs().mean()
    expected = expected + 5 * (total[:, 0] / showers.sum((1, 2, 3, 4)) - 1).abs().mean()
    gradients = torch.autograd.grad(expected, list(module.generator.parameters()))
    for parameter, gradient in zip(module.generator.parameters(), gradients, strict=True):
        tolerance = 1e-4 * float(gradient.abs().max())
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=tolerance)
    assert float(sums()[4]) / 3 == pytest.approx(float(expected.detach()), rel=1e-5)
    assert problem.measure(module.eval(), (showers,), energies)[0] == 3


def rests(network):
    return all(each.grad is None or not each.grad.any() for each in network.parameters())


def test_in_half_steps_one_network_trains_at_a_time():
    module, config = networks(), {"half_steps": True, "generator_batches": 2}
    for step in range(8):
        trained(module, step, **config)
        torch.manual_seed(11)
        fake, part = module.generator(noise()), step % 4
        if part == 0:
            scores = module.critic(samples())
            assert_gradients(module.critic, cross_entropy(scores, torch.ones_like(scores)))
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
    assert_gradients(module.generator, loss, rtol=1e-5, atol=1e-8)


def test_the_figure_of_merit_is_the_gap_of_the_mean_losses():
    module, real = networks(), samples()
    problem = GanProblem(GAN_LOSSES["non_saturating"], ("loss_gap",), GanConfig())
    sums = sum(problem.measure(module, (part,), None) for part in (real[:25], real[25:]))
    parts = [problem.measure(module, (part,), None)[2] / len(part) for part in (real[:25], real[25:])]
    mean = float((25 * parts[0] + 15 * parts[1]) / 40)
    assert problem.means(sums)["loss_gap"] == pytest.approx(abs(mean))
    one = problem.measure(module, (real,), None)
    scores = module.critic(real), module.critic(module.generator(fixed_noise(40, 3).double()))
    both, labels = torch.cat(scores), torch.cat([torch.ones(40, 1), torch.zeros(40, 1)]).double()
    gap = cross_entropy(scores[1], torch.ones(40, 1).double()) - cross_entropy(both, labels)
    assert problem.means(one)["loss_gap"] == pytest.approx(abs(float(gap.detach())))


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


def run(**changes):
    base = {"problem": {"name": "gan", "gradient_penalty": 10}, "model": {"name": "wgan"}}
    return Run.model_validate(base | changes)


ON_CYCLE = {"algorithm": {"name": "dsgt"}, "topology": {"name": "cycle"}, "loss": "least_squares"}


def test_a_run_of_a_gan():
    plain = run()
    assert (plain.loss, plain.metrics) == ("wasserstein", METRICS)
    problem = build_problem(plain)
    assert problem.names == ("loss", *METRICS)
    assert build_problem(run(metrics=["distance"])).names == ("loss", "distance")
    assert run(problem="gan", loss="least_squares").problem.critic_steps == 1
    assert "loss_gap" not in plain.metrics
    assert metric_direction("val_loss_gap") == "smaller"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "gan"}, "wasserstein requires a critic of bounded slope"),
        ({"problem": {"name": "gan", "gradient_penalty": 1, "energy_weight": 5}}, "the critic of wgan does not predict energies"),
        ({"problem": {"name": "gan", "gradient_penalty": 1, "weight_clip": 0.1}}, "cannot be combined with gradient_penalty"),
        ({"model": {"name": "simplecnn"}}, "simplecnn is not a generator with a critic; known: calorimeter_gan"),
        ({"problem": "classification"}, "wgan is a generator with a critic; set `problem: gan`"),
        ({"loss": "cross_entropy"}, "'cross_entropy' is only available for classification"),
        ({"metrics": ["accuracy"]}, "'accuracy' is only available for classification"),
        ({"metrics": ["distance@1"]}, "'distance@1' is not a metric of a gan; use distance, critic_loss, generator_loss"),
        ({"loss": {"0": "wasserstein"}}, "a gan has one loss"),
        ({"parallel": {"transport": "simulated", "simulation": {"compute": "batched", "sample_seconds": 1e-4}}},
         "batched is not supported for a gan; set `parallel.simulation.compute: exact`"),
        ({"train": {"compile": True}}, "not supported for a gan, whose networks are called separately"),
        ({"parallel": {"ranks": 2, "sync_batch_norm": True}}, "not supported for a gan, whose networks normalize the samples of each rank"),
        ({"problem": {"name": "gan", "weight_clip": 0.01}, "algorithm": {"name": "prox_pda"}, "parallel": {"ranks": 2},
          "topology": {"name": "path"}}, "prox_pda has no optimizer"),
        (ON_CYCLE | {"problem": {"name": "gan", "half_steps": True}},
         "would move the resting network in every step; set `problem.half_steps: false`"),
        (ON_CYCLE | {"problem": {"name": "gan", "critic_warm_up": {}}},
         "move the generator in every step; set `problem.critic_warm_up: null`"),
    ],
)  # fmt: skip
def test_refusals(changes, message):
    with pytest.raises(ValidationError, match=message):
        run(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"half_steps": True, "critic_steps": 2}, "cannot be combined with critic_steps; remove one of them"),
        ({"half_steps": True, "critic_warm_up": {}}, "cannot be combined with critic_warm_up"),
        ({"half_steps": True, "gradient_penalty": 10}, "cannot be combined with gradient_penalty"),
        ({"sum_polynomial": [1]}, "requires energy_weight; set `energy_weight`"),
        ({"sum_weight": 1}, "requires energy_weight"),
        ({"energy_weight": 5, "energy_range": [0.1, 5]}, "requires sum_polynomial"),
        ({"energy_weight": 5, "energy_range": [5, 1], "sum_polynomial": [1]}, r"the smaller one first, not \[5, 1\]"),
    ],
)  # fmt: skip
def test_refused_combinations(options, message):
    with pytest.raises(ValidationError, match=message):
        run(problem={"name": "gan", **options}, loss="least_squares")


def test_a_users_losses(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def hinge(real, fake):\n    return (1 - real).relu().mean() + (1 + fake).relu().mean(), -fake.mean()\n"
    )
    problem = build_problem(run(loss=f"{file}:hinge"))
    loss, _ = problem.compute_loss(networks(), (samples(7),), None, step=0)
    assert loss.requires_grad
    file.write_text("def one(real, fake):\n    return fake.mean()\n")
    with pytest.raises(UserError, match="must return a tuple of two scalar tensors"):
        build_problem(run(loss=f"{file}:one")).compute_loss(networks(), (samples(7),), None, step=0)
    with pytest.raises(UserError, match="cannot be used: AttributeError"):
        build_problem(run(loss=f"{file}:absent"))
