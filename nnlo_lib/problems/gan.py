"""Generative adversarial problems: a generator against a critic (Goodfellow et al., 2014)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nnlo_lib.config import Run
from nnlo_lib.config.problem import GanConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.problems.gan_losses import GanLosses, gan_losses_by_name, gradient_penalty
from nnlo_lib.problems.multi_output import Outputs, primary_output


class GanProblem(Problem):
    """Losses of a module with networks `generator` and `critic` and the length `latent` of the noise.

    One backward pass serves both networks: fake (generated) samples are constants in the critic's loss, and
    the critic's parameters are constants in the generator's loss. The generator trains in every
    `critic_steps`-th step, against the critic before this step; in other steps its gradient is zero. Noise is
    drawn from torch's default generator, which is seeded for each step. The metric `distance` is the critic's
    mean score of real samples minus the mean score of generated ones; if the critic's slope is bounded, it is
    the Wasserstein distance up to a factor.
    """

    def __init__(
        self, losses: GanLosses, metrics: Sequence[str] = (), critic_steps: int = 1, penalty: float = 0.0
    ) -> None:
        self.names = ("loss", *metrics)
        self.losses, self.critic_steps, self.penalty = losses, critic_steps, penalty

    @classmethod
    def from_config(cls, config: GanConfig, run: Run) -> "GanProblem":
        """Return the problem of a GAN run: a CalorimeterGanProblem if `energy_weight` is set."""
        assert isinstance(run.loss, str), "the configuration accepts only one loss for a GAN"
        settings = gan_losses_by_name(run.loss), run.metrics, config.critic_steps, config.gradient_penalty
        if config.energy_weight is None:
            return GanProblem(*settings)
        return CalorimeterGanProblem(*settings, config.energy_weight)

    def compute_loss(self, module: Any, inputs: tuple[Tensor, ...], targets: Tensor, step: int) -> BatchLoss:
        real, learns = inputs[0], (step + 1) % self.critic_steps == 0
        noise = torch.randn(len(real), module.latent, device=real.device, dtype=real.dtype)
        # Without a graph for its gradient in the steps in which the generator does not train.
        with torch.set_grad_enabled(learns):
            fake = module.generator(self.conditioned(noise, targets))
        # Constants in the critic's loss, which must give the generator no gradient.
        made = fake.detach()
        outputs = module.critic(real), module.critic(made)
        critic_loss, generator_loss = self.critic_and_generator_losses(*outputs, real, targets)
        if self.penalty:
            critic_loss = critic_loss + self.penalty * gradient_penalty(module.critic, real, made)
        loss = critic_loss
        if learns:
            # With constant parameters, the critic passes a gradient to the generator but gets none itself.
            loss = (
                loss
                + self.critic_and_generator_losses(
                    _detached(outputs[0]), apply_frozen(module.critic, fake), real, targets
                )[1]
            )
        return BatchLoss(loss, lambda: self._sums(*outputs, critic_loss, generator_loss))

    @torch.no_grad()
    def measure(self, module: Any, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums, without gradient penalty, for samples generated from fixed noise.

        Args:
            module: module with networks `generator` and `critic`, in evaluation mode.
            inputs: real samples, as a tuple of one tensor (samples, ...).
            targets: labels, (samples, ...).
        """
        real = inputs[0]
        noise = fixed_noise(len(real), module.latent).to(real)
        outputs = module.critic(real), module.critic(module.generator(self.conditioned(noise, targets)))
        return self._sums(*outputs, *self.critic_and_generator_losses(*outputs, real, targets))

    def conditioned(self, noise: Tensor, targets: Tensor) -> Tensor:
        """Return the input of the generator for this noise and these labels."""
        return noise

    def critic_and_generator_losses(
        self, of_real: Outputs, of_fake: Outputs, real: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of critic and generator.

        Args:
            of_real: outputs of the critic for real samples.
            of_fake: outputs of the critic for generated samples.
            real: the real samples, (samples, ...).
            targets: labels of the real samples, with which the others were generated.
        """
        return self.losses(primary_output(of_real), primary_output(of_fake))

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
        means = [float(known[name]) for name in self.names]
        return samples * torch.tensor([1.0, *means], dtype=torch.float64)


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


class CalorimeterGanProblem(GanProblem):
    """A GAN with energies as labels: the energies multiply the noise, and the critic estimates them.

    The critic returns (real, energy, sum of the cells). `weight` times the relative errors of energy and sum
    is added to the losses: the errors for real and generated showers to the critic's, the errors for
    generated showers to the generator's. Generated showers are compared with the real shower of the same
    energy.
    """

    def __init__(
        self, losses: GanLosses, metrics: tuple[str, ...], critic_steps: int, penalty: float, weight: float
    ) -> None:
        super().__init__(losses, metrics, critic_steps, penalty)
        self._weight = weight

    def conditioned(self, noise: Tensor, targets: Tensor) -> Tensor:
        """Multiply the noise of each shower by its energy."""
        return noise * targets.reshape(-1, 1).to(noise)

    def critic_and_generator_losses(
        self, of_real: Outputs, of_fake: Outputs, real: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        critic, generator = super().critic_and_generator_losses(of_real, of_fake, real, targets)
        energies, sums = targets.reshape(-1, 1).to(real), real.flatten(1).sum(1, keepdim=True)
        errors = [_relative(each[1], energies) + _relative(each[2], sums) for each in (of_real, of_fake)]
        return critic + self._weight * (errors[0] + errors[1]), generator + self._weight * errors[1]


def _relative(estimate: Tensor, true: Tensor) -> Tensor:
    """Return the mean absolute relative error, as in Keras' MAPE / 100."""
    return ((estimate - true) / true.abs().clamp(min=1e-7)).abs().mean()
