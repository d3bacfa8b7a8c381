"""Showers of particles in a calorimeter: samples made for a given energy (NNLO's 3-D GAN, Khattak et al., 2018)."""

from torch import Tensor

from nnlo_lib.problems.adversarial import Adversarial
from nnlo_lib.problems.gan import GanProblem
from nnlo_lib.problems.outputs import Outputs


class Showers(GanProblem):
    """A gan whose labels are energies: they multiply the noise, and the critic tells them.

    The critic returns (real, energy, sum of the cells). To both losses `weight` times the relative errors of energy
    and sum are added: of real showers, and of made ones against the real shower of that energy.
    """

    def __init__(
        self, losses: Adversarial, metrics: tuple[str, ...], critic_steps: int, penalty: float, weight: float
    ) -> None:
        super().__init__(losses, metrics, critic_steps, penalty)
        self._weight = weight

    def conditioned(self, noise: Tensor, targets: Tensor) -> Tensor:
        """Multiply the noise of each shower by its energy."""
        return noise * targets.reshape(-1, 1).to(noise)

    def both(
        self, of_real: Outputs, of_fake: Outputs, real: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of critic and generator."""
        critic, generator = super().both(of_real, of_fake, real, targets)
        energies, sums = targets.reshape(-1, 1).to(real), real.flatten(1).sum(1, keepdim=True)
        errors = [_relative(says[1], energies) + _relative(says[2], sums) for says in (of_real, of_fake)]
        return critic + self._weight * (errors[0] + errors[1]), generator + self._weight * errors[1]


def _relative(told: Tensor, true: Tensor) -> Tensor:
    """Return the mean absolute relative error, as Keras's MAPE / 100."""
    return ((told - true) / true.abs().clamp(min=1e-7)).abs().mean()
