"""Generative adversarial problems: a generator against a critic (Goodfellow et al., 2014)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nnlo_lib.config import Run
from nnlo_lib.config.problem import GanConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.problems.adversarial.gan_losses import GanLosses, gan_losses_by_name, gradient_penalty
from nnlo_lib.problems.adversarial.gan_turns import gan_turn
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.problems.multi_output import Outputs, primary_output

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
        if config.energy_weight is None:
            return GanProblem(gan_losses_by_name(run.loss), run.metrics, config)
        from nnlo_lib.problems.adversarial.shower_gan import CalorimeterGanProblem

        return CalorimeterGanProblem(gan_losses_by_name(run.loss), run.metrics, config)

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
        """Return as many generated samples as real ones, and their labels.

        Args:
            module: module with the network `generator`.
            real: real samples.
            targets: labels of the real samples.
        """
        noise = torch.randn(len(real), module.latent, device=real.device, dtype=real.dtype)
        drawn = self.drawn_targets(targets)
        return module.generator(self.conditioned(noise, drawn)), drawn

    def _generator_loss(
        self, module: Any, of_real: Outputs, first: tuple[Tensor, Tensor], real: Tensor, targets: Tensor
    ) -> Tensor:
        """Return the mean of the generator's losses for all of its batches in this step.

        Args:
            module: module with networks `generator` and `critic`.
            of_real: outputs of the critic for real samples.
            first: generated samples of the first batch, and their labels.
            real: real samples.
            targets: labels of the real samples.
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
        """Return the sums, without gradient penalty, for samples generated from fixed noise.

        Args:
            module: module with networks `generator` and `critic`, in evaluation mode.
            inputs: real samples, as a tuple of one tensor (samples, ...).
            targets: labels, (samples, ...).
        """
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
        """Return the losses of critic and generator.

        Args:
            of_real: outputs of the critic for real samples.
            of_fake: outputs of the critic for generated samples.
            real: the real samples, (samples, ...).
            targets: labels of the real samples.
            drawn: labels with which the others were generated.
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


def _exchanged(of_real: Outputs, of_fake: Outputs, share: float) -> tuple[Outputs, Outputs]:
    """Return the outputs with the scores of some pairs exchanged, as if their labels were wrong.

    Args:
        of_real: outputs of the critic for real samples.
        of_fake: outputs of the critic for as many generated samples.
        share: probability that a pair is exchanged.
    """
    real, fake = primary_output(of_real), primary_output(of_fake)
    wrong = torch.rand(len(real), 1, device=real.device, dtype=real.dtype) < share
    scores = torch.where(wrong, fake, real), torch.where(wrong, real, fake)
    return _with_scores(of_real, scores[0]), _with_scores(of_fake, scores[1])


def _with_scores(outputs: Outputs, scores: Tensor) -> Outputs:
    return scores if isinstance(outputs, Tensor) else (scores, *outputs[1:])


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
