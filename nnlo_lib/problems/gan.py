"""Generative adversarial problems: losses of a generator and a critic (Goodfellow et al., 2014), the turns in which they train, and calorimeter showers."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from nnlo_lib.config import Run
from nnlo_lib.config.problem import CriticWarmUpConfig, GanConfig
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.problems.losses import user_loss
from nnlo_lib.problems.supervised import Outputs, primary_output

GanLosses = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # scores of real, generated samples (n, 1)
LOSS_GAP = "loss_gap"  # NNLO's figure of merit


class GanProblem(Problem):
    """Losses of a module with networks `generator` and `critic` and the length `latent` of the noise.

    One backward pass serves both networks: fake (generated) samples are constants in the critic's loss, and
    the critic's parameters are constants in the generator's loss. `gan_turn` decides which network trains in a
    step, against the other network before this step; the gradient of a resting network is zero. Noise is
    drawn from torch's default generator, which is seeded for each step. The metric `distance` is the critic's
    mean score of real samples minus the mean score of generated ones; if the critic's slope is bounded, it is
    the Wasserstein distance up to a factor.
    """

    def __init__(self, losses: GanLosses, metrics: Sequence[str], config: GanConfig) -> None:
        self.names = ("loss", *metrics)
        self.losses, self.config = losses, config

    @classmethod
    def from_config(cls, config: GanConfig, run: Run) -> "GanProblem":
        """Return the problem of a GAN run: a CalorimeterGanProblem if `energy_weight` is set."""
        assert isinstance(run.loss, str), "the configuration accepts only one loss for a GAN"
        kind = GanProblem if config.energy_weight is None else CalorimeterGanProblem
        return kind(gan_losses_by_name(run.loss), run.metrics, config)

    def compute_loss(self, module: Any, inputs: tuple[Tensor, ...], targets: Tensor, step: int) -> BatchLoss:
        real, turn = inputs[0], gan_turn(self.config, step)
        # Without a graph for its gradient in the steps in which the generator does not train.
        with torch.set_grad_enabled(turn.generator):
            fake, drawn = self._generated(module, real, targets)
        # Constants in the critic's loss, which must give the generator no gradient.
        made = fake.detach()
        outputs = module.critic(real), module.critic(made)
        # The half of the loss that does not train is a constant.
        trained = (
            outputs[0] if turn.real else _detached(outputs[0]),
            outputs[1] if turn.generated else _detached(outputs[1]),
        )
        critic_loss, generator_loss = self.critic_and_generator_losses(*trained, real, targets, drawn)
        if self.config.label_flips:
            flipped = _exchanged(*trained, self.config.label_flips)
            critic_loss = self.critic_and_generator_losses(*flipped, real, targets, drawn)[0]
        if self.config.gradient_penalty:
            penalty = gradient_penalty(module.critic, real, made)
            critic_loss = critic_loss + self.config.gradient_penalty * penalty
        loss = critic_loss
        if turn.generator:
            loss = loss + self._generator_loss(module, outputs[0], (fake, drawn), real, targets)
        return BatchLoss(loss, lambda: self._sums(*outputs, critic_loss, generator_loss))

    def _generated(self, module: Any, real: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return as many generated samples as real ones, and their labels."""
        noise = torch.randn(len(real), module.latent, device=real.device, dtype=real.dtype)
        drawn = self.drawn_targets(targets)
        return module.generator(self.conditioned(noise, drawn)), drawn

    def _generator_loss(
        self, module: Any, of_real: Outputs, first: tuple[Tensor, Tensor], real: Tensor, targets: Tensor
    ) -> Tensor:
        """Return the mean of the generator's losses for all of its batches in this step.

        `of_real` is the critic's output for real samples; `first` has the generated samples of the first batch, and their labels.
        """
        # In half-steps, each batch of the generator has a step of its own.
        more = 0 if self.config.half_steps else self.config.generator_batches - 1
        batches = [first, *(self._generated(module, real, targets) for _ in range(more))]
        constant = _detached(of_real)
        # With constant parameters, the critic passes a gradient to the generator but gets none itself.
        losses = [
            self.critic_and_generator_losses(
                constant, apply_frozen(module.critic, fake), real, targets, drawn
            )[1]
            for fake, drawn in batches
        ]
        return torch.stack(losses).mean() if more else losses[0]

    @torch.no_grad()
    def measure(self, module: Any, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums, without gradient penalty, for samples generated from fixed noise."""
        real = inputs[0]
        noise = fixed_noise(len(real), module.latent).to(real)
        outputs = module.critic(real), module.critic(module.generator(self.conditioned(noise, targets)))
        return self._sums(*outputs, *self.critic_and_generator_losses(*outputs, real, targets, targets))

    def conditioned(self, noise: Tensor, targets: Tensor) -> Tensor:
        """Return the input of the generator for this noise and these labels."""
        return noise

    def drawn_targets(self, targets: Tensor) -> Tensor:
        """Return the labels of generated samples in training, by default those of the real samples."""
        return targets

    def critic_and_generator_losses(
        self, of_real: Outputs, of_fake: Outputs, real: Tensor, targets: Tensor, drawn: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of critic and generator of the critic's outputs for real and generated samples.

        `targets` are the labels of the real samples, `drawn` those of the generated ones.
        """
        return self.losses(primary_output(of_real), primary_output(of_fake))

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name; the gap is the absolute value of the mean difference."""
        found = super().means(sums)
        return {name: abs(value) if name == LOSS_GAP else value for name, value in found.items()}

    @torch.no_grad()
    def _sums(
        self, of_real: Outputs, of_fake: Outputs, critic_loss: Tensor, generator_loss: Tensor
    ) -> Tensor:
        samples = len(primary_output(of_real))
        known = {
            "loss": critic_loss + generator_loss,
            "critic_loss": critic_loss,
            "generator_loss": generator_loss,
            "distance": primary_output(of_real).mean() - primary_output(of_fake).mean(),
        }
        if LOSS_GAP in self.names:
            # The critic's loss counts real and generated samples, the generator's only the latter.
            critic, generator = self.losses(primary_output(of_real), primary_output(of_fake))
            known[LOSS_GAP] = generator - critic / 2
        means = [float(known[name]) for name in self.names]
        return samples * torch.tensor([1.0, *means], dtype=torch.float64)


class CalorimeterGanProblem(GanProblem):
    """A GAN with energies as labels: the energies multiply the noise, and the critic estimates them.

    The critic returns (real, energy, sum of the cells). The weighted relative errors of energy and sum are
    added to the losses: the errors for real and generated showers to the critic's, the errors for generated
    showers to the generator's. Generated showers have the energies of the real showers, or random ones; their
    sum is compared with that of the real shower of the same energy, or with a polynomial of the energy.
    """

    def __init__(self, losses: GanLosses, metrics: Sequence[str], config: GanConfig) -> None:
        super().__init__(losses, metrics, config)
        assert config.energy_weight is not None, "the problem of a GAN without energies is GanProblem"
        self._energy_weight = config.energy_weight

    def conditioned(self, noise: Tensor, targets: Tensor) -> Tensor:
        """Multiply the noise of each shower by its energy."""
        return noise * targets.reshape(-1, 1).to(noise)

    def drawn_targets(self, targets: Tensor) -> Tensor:
        """Return the energies of generated showers in training, as many as `targets`."""
        if self.config.energy_range is None:
            return targets
        low, high = self.config.energy_range
        drawn = torch.rand(len(targets), 1, device=targets.device)
        return low + (high - low) * drawn

    def critic_and_generator_losses(
        self, of_real: Outputs, of_fake: Outputs, real: Tensor, targets: Tensor, drawn: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of critic and generator; `targets` and `drawn` are energies of real and generated showers."""
        critic, generator = super().critic_and_generator_losses(of_real, of_fake, real, targets, drawn)
        sums = real.flatten(1).sum(1, keepdim=True)
        errors = _errors(of_real, targets, sums)
        of_generated = _errors(of_fake, drawn, self._expected_sums(drawn, sums))
        return critic + self._weighted(errors, of_generated), generator + self._weighted(of_generated)

    def _weighted(self, *errors: tuple[Tensor, Tensor]) -> Tensor:
        """Return the weighted sum of errors of energies and sums."""
        weight, sum_weight = self._energy_weight, self.config.sum_weight
        if sum_weight is None:
            first, *others = [energy + total for energy, total in errors]
            return weight * sum(others, first)
        first, *others = [weight * energy + sum_weight * total for energy, total in errors]
        return sum(others, first)

    def _expected_sums(self, energies: Tensor, of_real: Tensor) -> Tensor:
        """Return the sums of the cells of generated showers, (n, 1): E (c_0 E^k + ... + c_k), or the real ones."""
        if self.config.sum_polynomial is None:
            return of_real
        energy = energies.reshape(-1, 1).to(of_real)
        value = torch.zeros_like(energy)
        for coefficient in self.config.sum_polynomial:
            value = value * energy + coefficient
        return energy * value


def _errors(outputs: Outputs, energies: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return the relative errors of the critic's estimates of the true energies and sums of the cells, (samples, 1)."""
    # Means of absolute relative errors, as in Keras' MAPE / 100.
    pairs = (outputs[1], energies.reshape(-1, 1).to(sums)), (outputs[2], sums)
    energy, total = (
        ((estimate - true) / true.abs().clamp(min=1e-7)).abs().mean() for estimate, true in pairs
    )
    return energy, total


def wasserstein(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of critic and generator of Arjovsky, Chintala and Bottou, 2017, algorithm 1."""
    return fake.mean() - real.mean(), -fake.mean()


def least_squares(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of critic and generator of Mao et al., 2017, equation 9."""
    return ((real - 1).square().mean() + fake.square().mean()) / 2, (fake - 1).square().mean() / 2


def non_saturating(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of critic and generator of Goodfellow et al., 2014, section 3; scores are logits."""
    softplus = functional.softplus
    return softplus(-real).mean() + softplus(fake).mean(), softplus(-fake).mean()


GAN_LOSSES: dict[str, GanLosses] = {
    "wasserstein": wasserstein,
    "least_squares": least_squares,
    "non_saturating": non_saturating,
}


def gan_losses_by_name(name: str) -> GanLosses:
    """Return GAN losses by name. Raises UserError if a user's function cannot be loaded."""
    return partial(_checked, name, user_loss(name)) if ".py:" in name else GAN_LOSSES[name]


def _checked(name: str, function: Callable[..., Any], real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    try:
        found = function(real, fake)
    except USER_CODE_ERRORS as error:
        raise UserError(f"{name}(real, fake) failed: {error_with_source_line(error)}") from error
    if not (isinstance(found, tuple) and [getattr(each, "shape", None) for each in found] == [(), ()]):
        raise UserError(
            f"{name} must return a tuple of two scalar tensors: the losses of the critic and of the generator"
        )
    critic, generator = found
    return critic, generator


def gradient_penalty(critic: Callable[[Tensor], Any], real: Tensor, fake: Tensor) -> Tensor:
    """Return the mean (|slope| - 1)^2 between real and fake samples (Gulrajani et al., 2017, equation 3).

    The first output of `critic` is the score of each sample.
    """
    # A random point on the line between each real sample and a generated one.
    share = torch.rand(len(real), *(1,) * (real.dim() - 1), device=real.device, dtype=real.dtype)
    between = torch.lerp(fake, real, share).requires_grad_()
    # The gradient of the sum is the slope at each sample if the critic treats samples independently; the
    # penalty itself is differentiated, too (create_graph).
    (slope,) = torch.autograd.grad(primary_output(critic(between)).sum(), between, create_graph=True)
    steepness: Tensor = torch.linalg.vector_norm(slope.flatten(1), dim=1)
    return (steepness - 1).square().mean()


class GanTurn(NamedTuple):
    """What trains in one step: the critic with `real` samples, the critic with `generated` samples, the `generator`."""

    real: bool
    generated: bool
    generator: bool


def gan_turn(config: GanConfig, step: int) -> GanTurn:
    """Return what trains in a step, counted from 0."""
    if config.half_steps:
        # NNLO's order: critic with real samples, critic with generated samples, then the generator.
        part = step % config.cycle
        return GanTurn(part == 0, part == 1, part >= 2)
    if config.critic_warm_up is None:
        return GanTurn(True, True, (step + 1) % config.critic_steps == 0)
    # The generator trains in the last of these steps.
    steps, steps_of = step + 1, partial(_steps_of, usual=config.critic_steps, warm_up=config.critic_warm_up)
    updates = bisect_right(range(steps + 1), steps, key=steps_of) - 1
    return GanTurn(True, True, updates > 0 and steps_of(updates) == steps)


def _steps_of(updates: int, usual: int, warm_up: CriticWarmUpConfig) -> int:
    """Return the number of steps in which the generator trains for the first `updates` times, later in each `usual`-th step."""
    long = min(updates, warm_up.updates)
    if warm_up.every:
        # Updates 0, every, 2 every, ... that do not belong to the first ones.
        long += max(0, -(-updates // warm_up.every) - -(-warm_up.updates // warm_up.every))
    return usual * updates + (warm_up.steps - usual) * long


def _exchanged(of_real: Outputs, of_fake: Outputs, share: float) -> tuple[Outputs, Outputs]:
    """Return the outputs with the scores of some pairs exchanged, as if their labels were wrong.

    `share` is the probability that a pair of a real and a generated sample is exchanged.
    """
    real, fake = primary_output(of_real), primary_output(of_fake)
    wrong = torch.rand(len(real), 1, device=real.device, dtype=real.dtype) < share
    pairs = (of_real, torch.where(wrong, fake, real)), (of_fake, torch.where(wrong, real, fake))
    first, second = (scores if isinstance(each, Tensor) else (scores, *each[1:]) for each, scores in pairs)
    return first, second


def apply_frozen(network: nn.Module, samples: Tensor) -> Outputs:
    """Apply a network so that its parameters get no gradient and its batch-norm statistics do not change."""
    parameters = {name: each.detach() for name, each in network.named_parameters()}
    buffers = {name: each.clone() for name, each in network.named_buffers()}
    return functional_call(network, {**parameters, **buffers}, samples)


def _detached(outputs: Outputs) -> Outputs:
    return outputs.detach() if isinstance(outputs, Tensor) else tuple(each.detach() for each in outputs)


def fixed_noise(samples: int, latent: int) -> Tensor:
    """Return the fixed noise (samples, latent) for the samples of evaluations and pictures."""
    # A constant seed, so that evaluations and pictures of all epochs and runs can be compared.
    generator = torch.Generator().manual_seed(derive_seed(0, "noise to look at"))
    return torch.randn(samples, latent, generator=generator)
