"""Losses of a critic and a generator by the equations of the papers, with other functions of torch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class GanOracle(NamedTuple):
    """Losses of the critic and of the generator from scores of real and generated samples; name of the reference."""

    losses: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    reference: str


def wasserstein(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of Arjovsky, Chintala and Bottou 2017, algorithm 1."""
    return fake.sum() / len(fake) - real.sum() / len(real), -fake.sum() / len(fake)


def least_squares(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of Mao et al. 2017, equation 9, with a = 0 and b = c = 1."""
    one, zero = torch.ones_like, torch.zeros_like
    critic = functional.mse_loss(real, one(real)) + functional.mse_loss(fake, zero(fake))
    return critic / 2, functional.mse_loss(fake, one(fake)) / 2


def non_saturating(real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses of Goodfellow et al. 2014, section 3, as binary cross-entropies."""
    entropy = functional.binary_cross_entropy_with_logits
    one, zero = torch.ones_like, torch.zeros_like
    return entropy(real, one(real)) + entropy(fake, zero(fake)), entropy(fake, one(fake))


GAN_ORACLES = {
    "wasserstein": GanOracle(wasserstein, "Arjovsky, Chintala and Bottou 2017, algorithm 1"),
    "least_squares": GanOracle(least_squares, "Mao et al. 2017, equation 9; torch.nn.functional.mse_loss"),
    "non_saturating": GanOracle(
        non_saturating,
        "Goodfellow et al. 2014, section 3; torch.nn.functional.binary_cross_entropy_with_logits",
    ),
}
