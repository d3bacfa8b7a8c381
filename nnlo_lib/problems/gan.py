"""Learn to make samples like those given: a generator against a critic (Goodfellow et al., 2014)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nnlo_lib.config import Gan, Run
from nnlo_lib.problems.adversarial import Adversarial, gradient_penalty, losses_of
from nnlo_lib.problems.outputs import Outputs, first
from nnlo_lib.problems.problem import Objective
from nnlo_lib.streams import stream


class GanProblem:
    """Losses of a module with networks `generator` and `critic` and the length `latent` of the noise.

    One gradient serves both: the critic's loss sees made samples as constants, the generator's sees a critic whose
    parameters are constants. The generator learns in every critic_steps-th step, at the same critic; in others its
    gradient is zero. Noise comes from torch's generator, which is seeded for each step. distance: by how much the
    critic scores real samples higher; with a critic of bounded slope the Wasserstein distance, up to a factor.
    """

    def __init__(
        self, losses: Adversarial, metrics: Sequence[str] = (), critic_steps: int = 1, penalty: float = 0.0
    ) -> None:
        self.names = ("loss", *metrics)
        self.losses, self.critic_steps, self.penalty = losses, critic_steps, penalty

    def objective(self, module: Any, inputs: tuple[Tensor, ...], targets: Tensor, step: int) -> Objective:
        """Return the critic's loss, in steps where the generator learns plus the generator's."""
        real, learns = inputs[0], (step + 1) % self.critic_steps == 0
        noise = torch.randn(len(real), module.latent, device=real.device, dtype=real.dtype)
        with torch.set_grad_enabled(learns):
            fake = module.generator(self.conditioned(noise, targets))
        made = fake.detach()
        says = module.critic(real), module.critic(made)
        critic_loss, generator_loss = self.both(*says, real, targets)
        if self.penalty:
            critic_loss = critic_loss + self.penalty * gradient_penalty(module.critic, real, made)
        loss = critic_loss
        if learns:
            loss = loss + self.both(_detached(says[0]), frozen(module.critic, fake), real, targets)[1]
        return Objective(loss, lambda: self._sums(*says, critic_loss, generator_loss))

    @torch.no_grad()
    def measure(self, module: Any, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums, without penalty, against samples made of always the same noise."""
        real = inputs[0]
        noise = fixed_noise(len(real), module.latent).to(real)
        says = module.critic(real), module.critic(module.generator(self.conditioned(noise, targets)))
        return self._sums(*says, *self.both(*says, real, targets))

    def conditioned(self, noise: Tensor, targets: Tensor) -> Tensor:
        """Return what the generator makes samples of."""
        return noise

    def both(
        self, of_real: Outputs, of_fake: Outputs, real: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of critic and generator, of all that the critic says of real and of made samples."""
        return self.losses(first(of_real), first(of_fake))

    @torch.no_grad()
    def _sums(
        self, of_real: Outputs, of_fake: Outputs, critic_loss: Tensor, generator_loss: Tensor
    ) -> Tensor:
        samples = len(first(of_real))
        known = {
            "loss": critic_loss + generator_loss,
            "critic_loss": critic_loss,
            "generator_loss": generator_loss,
            "distance": first(of_real).mean() - first(of_fake).mean(),
        }
        means = [float(known[name]) for name in self.names]
        return samples * torch.tensor([1.0, *means], dtype=torch.float64)

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean losses by name."""
        samples, *totals = sums.tolist()
        return {name: total / samples for name, total in zip(self.names, totals, strict=True) if samples}


def gan_problem(run: Run, problem: Gan) -> GanProblem:
    """Return what a run of a gan learns. Raises UserError if a user's function cannot be read."""
    from nnlo_lib.problems.showers import Showers

    assert isinstance(run.loss, str), "config refuses others"
    settings = losses_of(run.loss), run.metrics, problem.critic_steps, problem.gradient_penalty
    return (
        GanProblem(*settings) if problem.energy_weight is None else Showers(*settings, problem.energy_weight)
    )


def frozen(network: nn.Module, samples: Tensor) -> Outputs:
    """Apply a network whose parameters get no gradient and whose batch-norm statistics stay as they are."""
    parameters = {name: each.detach() for name, each in network.named_parameters()}
    buffers = {name: each.clone() for name, each in network.named_buffers()}
    return functional_call(network, {**parameters, **buffers}, samples)


def _detached(outputs: Outputs) -> Outputs:
    return outputs.detach() if isinstance(outputs, Tensor) else tuple(each.detach() for each in outputs)


def fixed_noise(samples: int, latent: int) -> Tensor:
    """Return the noise (samples, latent) of which samples are made for measuring and for looking at."""
    generator = torch.Generator().manual_seed(stream(0, "noise to look at"))
    return torch.randn(samples, latent, generator=generator)
