"""GAN of showers in a calorimeter: energies condition the generator, and the critic estimates them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nnlo_lib.config.problem import GanConfig
from nnlo_lib.problems.gan import GanLosses, GanProblem
from nnlo_lib.problems.supervised import Outputs


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
        """Return the losses of critic and generator.

        Args:
            of_real: outputs of the critic for real showers.
            of_fake: outputs of the critic for generated showers.
            real: the real showers, (samples, ...).
            targets: energies of the real showers.
            drawn: energies of the generated showers.
        """
        critic, generator = super().critic_and_generator_losses(of_real, of_fake, real, targets, drawn)
        sums = real.flatten(1).sum(1, keepdim=True)
        errors = _errors(of_real, targets, sums)
        of_generated = _errors(of_fake, drawn, self._expected_sums(drawn, sums))
        return critic + self._weighted(errors, of_generated), generator + self._weighted(of_generated)

    def _weighted(self, *errors: tuple[Tensor, Tensor]) -> Tensor:
        """Return the weighted sum of errors of energies and sums."""
        weight, sum_weight = self._energy_weight, self.config.sum_weight
        if sum_weight is None:
            return weight * _sum([energy + total for energy, total in errors])
        return _sum([weight * energy + sum_weight * total for energy, total in errors])

    def _expected_sums(self, energies: Tensor, of_real: Tensor) -> Tensor:
        """Return the sums of the cells of generated showers, (n, 1): E (c_0 E^k + ... + c_k), or the real ones."""
        if self.config.sum_polynomial is None:
            return of_real
        energy = energies.reshape(-1, 1).to(of_real)
        value = torch.zeros_like(energy)
        for coefficient in self.config.sum_polynomial:
            value = value * energy + coefficient
        return energy * value


def _sum(terms: list[Tensor]) -> Tensor:
    total, *others = terms
    for each in others:
        total = total + each
    return total


def _errors(outputs: Outputs, energies: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return the relative errors of the critic's estimates of energies and sums.

    Args:
        outputs: outputs of the critic.
        energies: true energies.
        sums: true sums of the cells, (samples, 1).
    """
    return _relative(outputs[1], energies.reshape(-1, 1).to(sums)), _relative(outputs[2], sums)


def _relative(estimate: Tensor, true: Tensor) -> Tensor:
    """Return the mean absolute relative error, as in Keras' MAPE / 100."""
    return ((estimate - true) / true.abs().clamp(min=1e-7)).abs().mean()
