"""Losses of a generator and a critic, and the gradient penalty that bounds the critic's slope."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_function
from nnlo_lib.problems.multi_output import primary_output

GanLosses = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # scores of real, generated samples (n, 1)


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
    if ".py:" not in name:
        return GAN_LOSSES[name]
    try:
        return partial(_checked, name, load_user_function(name))
    except USER_CODE_ERRORS as error:
        raise UserError(f"{name} cannot be used: {error_with_source_line(error)}") from error


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

    Args:
        critic: returns the score of each sample as its first output.
        real: real samples, (samples, ...).
        fake: generated samples, (samples, ...), without gradient.
    """
    # A random point on the line between each real sample and a generated one.
    share = torch.rand(len(real), *(1,) * (real.dim() - 1), device=real.device, dtype=real.dtype)
    between = torch.lerp(fake, real, share).requires_grad_()
    # The gradient of the sum is the slope at each sample if the critic treats samples independently; the
    # penalty itself is differentiated, too (create_graph).
    (slope,) = torch.autograd.grad(primary_output(critic(between)).sum(), between, create_graph=True)
    steepness: Tensor = torch.linalg.vector_norm(slope.flatten(1), dim=1)
    return (steepness - 1).square().mean()
