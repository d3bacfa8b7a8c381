"""Losses and gradients of generator and critic compared with separate computations."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.config.problem import GanConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model as model
from nnlo_lib.models.zoo.gan import Gan
from nnlo_lib.problems.adversarial.gan import GanProblem, apply_frozen, fixed_noise
from nnlo_lib.problems.adversarial.gan_losses import GAN_LOSSES, gradient_penalty
from nnlo_lib.problems.adversarial.shower_gan import CalorimeterGanProblem
from nnlo_lib.problems.factory import build_problem

METRICS = ("distance", "critic_loss", "generator_loss")


def networks(batch_norm: bool = False) -> Gan:
    torch.manual_seed(3)
    normalization = [nn.BatchNorm1d(6)] if batch_norm else []
    generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    critic = nn.Sequential(nn.Linear(4, 6), *normalization, nn.Tanh(), nn.Linear(6, 1))
    return Gan(generator, critic, latent=3).double()


def samples(count: int = 7) -> torch.Tensor:
    return torch.rand(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", GAN_LOSSES)
@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_one_backward_pass_gives_each_network_the_gradient_of_its_own_loss(name, penalty):
    module, real = networks(), samples()
    torch.manual_seed(11)
    loss, sums = GanProblem(GAN_LOSSES[name], METRICS, GanConfig(gradient_penalty=penalty)).compute_loss(
        module, (real,), None, step=0
    )
    loss.backward()

    torch.manual_seed(11)  # the same noise and the same interpolation points
    fake = module.generator(torch.randn(7, 3, dtype=torch.float64))
    critic_loss = GAN_LOSSES[name](module.critic(real), module.critic(fake.detach()))[0]
    if penalty:
        critic_loss = critic_loss + penalty * gradient_penalty(module.critic, real, fake.detach())
    generator_loss = GAN_LOSSES[name](module.critic(real), module.critic(fake))[1]
    for network, own in ((module.critic, critic_loss), (module.generator, generator_loss)):
        expected = torch.autograd.grad(own, list(network.parameters()), retain_graph=True)
        for parameter, gradient in zip(network.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-12, atol=1e-14)
    distance = module.critic(real).mean() - module.critic(fake).mean()
    measured = torch.stack([critic_loss + generator_loss, distance, critic_loss, generator_loss])
    torch.testing.assert_close(sums(), 7 * torch.cat([torch.ones(1), measured.detach()]).double())


def test_penalty_against_finite_differences():
    """Finite differences give the slopes in the samples and the gradient of the penalty in the critic's parameters."""
    module, real, fake = networks(), samples(), samples(7).flip(0) - 0.3
    critic, parameter = module.critic, module.critic[0].weight

    def penalty() -> torch.Tensor:
        torch.manual_seed(2)
        return gradient_penalty(critic, real, fake)

    torch.manual_seed(2)
    between = torch.lerp(fake, real, torch.rand(7, 1, dtype=torch.float64))
    step, eye = 1e-6, torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        slopes = [
            (critic(between + step * axis) - critic(between - step * axis)) / (2 * step) for axis in eye
        ]
        norms = torch.cat(slopes, 1).square().sum(1).sqrt()
    assert float(penalty_of(penalty)) == pytest.approx(float((norms - 1).square().mean()), rel=1e-8)

    (gradient,) = torch.autograd.grad(penalty(), parameter)
    for place in ((0, 0), (3, 2), (5, 1)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter[place] += sign * step
                values.append(float(penalty_of(penalty)))
                parameter[place] -= sign * step
        assert float(gradient[place]) == pytest.approx(
            (values[0] - values[1]) / (2 * step), rel=1e-6, abs=1e-9
        )


def penalty_of(penalty) -> torch.Tensor:
    with torch.enable_grad():
        return penalty().detach()


def test_the_generator_rests_between_its_turns():
    module, real = networks(), samples()
    problem = GanProblem(GAN_LOSSES["wasserstein"], METRICS, GanConfig(critic_steps=3))
    for step in range(6):
        module.zero_grad()
        problem.compute_loss(module, (real,), None, step).loss.backward()
        moved = [parameter.grad is not None for parameter in module.generator.parameters()]
        assert moved == [step % 3 == 2] * 4
        assert all(bool(parameter.grad.any()) for parameter in module.critic[0].parameters())


def test_a_frozen_network_keeps_its_statistics_and_gets_no_gradient():
    module = networks(batch_norm=True)
    before = {name: each.clone() for name, each in module.critic.named_buffers()}
    inputs = samples().requires_grad_()
    scores = apply_frozen(module.critic, inputs)
    scores.square().sum().backward()
    assert inputs.grad is not None
    assert all(parameter.grad is None for parameter in module.critic.parameters())
    assert all(torch.equal(each, before[name]) for name, each in module.critic.named_buffers())
    assert torch.equal(scores, module.critic(samples()))


def test_measuring_is_the_same_each_time_and_adds_up():
    module, real = networks(), samples()
    problem = GanProblem(GAN_LOSSES["least_squares"], METRICS, GanConfig())
    first = problem.measure(module, (real,), None)
    torch.manual_seed(99)
    assert torch.equal(first, problem.measure(module, (real,), None))
    scores = module.critic(real), module.critic(module.generator(fixed_noise(7, 3).double()))
    critic_loss, generator_loss = GAN_LOSSES["least_squares"](*scores)
    means = problem.means(2 * first)
    assert means["loss"] == pytest.approx(float((critic_loss + generator_loss).detach()))
    assert means["distance"] == pytest.approx(float(scores[0].mean() - scores[1].mean()))
    assert problem.means(torch.zeros(5, dtype=torch.float64)) == {}


@pytest.mark.long
def test_showers_for_given_energies():
    """The calorimeter GAN multiplies noise by energy; both losses contain relative errors of energy and cell sum."""
    module = model("calorimeter_gan", {"dropout": 0.0}, (1, 25, 25, 25), 0, seed=1)
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
        torch.testing.assert_close(
            parameter.grad, gradient, rtol=1e-4, atol=1e-4 * float(gradient.abs().max())
        )
    assert float(sums()[4]) / 3 == pytest.approx(float(expected.detach()), rel=1e-5)
    assert problem.measure(module.eval(), (showers,), energies)[0] == 3


def run(**changes) -> Run:
    base = {"problem": {"name": "gan", "gradient_penalty": 10}, "model": {"name": "wgan"}}
    return Run.model_validate(base | changes)


def test_a_run_of_a_gan():
    plain = run()
    assert (plain.loss, plain.metrics) == ("wasserstein", METRICS)
    problem = build_problem(plain)
    assert problem.names == ("loss", *METRICS)
    assert build_problem(run(metrics=["distance"])).names == ("loss", "distance")
    assert run(problem="gan", loss="least_squares").problem.critic_steps == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
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
    ],
)  # fmt: skip
def test_refusals(changes, sentence):
    with pytest.raises(ValidationError, match=sentence):
        run(**changes)


def test_a_users_losses(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def hinge(real, fake):\n    return (1 - real).relu().mean() + (1 + fake).relu().mean(), -fake.mean()\n"
    )
    problem = build_problem(run(loss=f"{file}:hinge"))
    loss, _ = problem.compute_loss(networks(), (samples(),), None, step=0)
    assert loss.requires_grad
    file.write_text("def one(real, fake):\n    return fake.mean()\n")
    with pytest.raises(UserError, match="must return a tuple of two scalar tensors"):
        build_problem(run(loss=f"{file}:one")).compute_loss(networks(), (samples(),), None, step=0)
    with pytest.raises(UserError, match="cannot be used: AttributeError"):
        build_problem(run(loss=f"{file}:absent"))
