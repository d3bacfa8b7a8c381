"""Generators and critics of images: Theano-MPI's WGAN and LS-GAN (arXiv 1701.07875, 1611.04076)."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from torch import Tensor, nn

from nnlo_lib.models.activations import activation_named
from nnlo_lib.models.blocks import image_shape

Sides = tuple[int, int]  # height, width


class Gan(nn.Module):
    """Two networks, one of which makes samples while the other rates them.

    Args:
        generator: network from noise (n, latent) to samples (n, *shape).
        critic: network from samples to ratings.
        latent: number of noise values for each sample.
    """

    def __init__(self, generator: nn.Module, critic: nn.Module, latent: int) -> None:
        super().__init__()
        self.generator, self.critic, self.latent = generator, critic, latent

    def forward(self, noise: Tensor) -> Tensor:
        """Return samples (n, *shape) from noise (n, latent)."""
        samples: Tensor = self.generator(noise)
        return samples


class GeneratorAndCritic(nn.Module):
    """Generator and critic of a GAN as one model that takes samples, for the table of its layers."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.generator, self.critic, self.latent = module.generator, module.critic, module.latent

    def forward(self, samples: Tensor) -> tuple[Any, Any]:
        """Return samples generated from zeros, as many as given, and the critic's outputs for the given samples."""
        return self.generator(samples.new_zeros(len(samples), self.latent)), self.critic(samples)


def callable_on_samples(module: nn.Module) -> nn.Module:
    """Return a module that takes samples: the model itself, or generator and critic of a GAN as one model."""
    return GeneratorAndCritic(module) if hasattr(module, "critic") and hasattr(module, "latent") else module


def gan(
    shape: tuple[int, ...],
    classes: int = 0,
    latent: int = 100,
    filters: Sequence[int] = (64, 128),
    critic_filters: Sequence[int] | None = None,
    hidden: int = 1024,
    batch_norm: bool = True,
    output: str = "sigmoid",
) -> Gan:
    """Build a critic that halves the sides for each of its filters and a generator that doubles them again.

    The critic returns (n, 1) without bounds.

    Args:
        shape: channels, height and width of a sample.
        classes: not used.
        latent: number of noise values for each sample.
        filters: filters of the generator, starting at the large end.
        critic_filters: filters of the critic, as many as `filters`; by default, the same.
        hidden: units of the dense layer at the small end; 0 leaves the layer out.
        batch_norm: normalize batches in the critic; must be off for a gradient penalty.
        output: final activation of the generator, `sigmoid` for pixels in [0, 1], `tanh` for [-1, 1].

    Raises:
        ValueError: if the sides are not divisible by 2 ** len(filters), or if `filters` and `critic_filters`
            differ in length.
    """
    divisor = 2 ** len(filters)
    shape = image_shape(shape, divisor, "a generator")
    if any(side % divisor for side in shape[1:]):
        raise ValueError(
            f"a generator with {len(filters)} doublings requires sides divisible by {divisor}, not {shape[1:]}"
        )
    if len(critic_filters or filters) != len(filters):
        raise ValueError(
            f"critic_filters has {len(critic_filters or filters)} entries, but filters has {len(filters)}; use as many in both"
        )
    sides = (shape[1] // divisor, shape[2] // divisor)
    generator = _generator(sides, [shape[0], *filters][::-1], latent, hidden, activation_named(output)())
    critic = _critic(sides, [shape[0], *(critic_filters or filters)], hidden, batch_norm)
    return Gan(generator, critic, latent)


def _generator(sides: Sides, widths: Sequence[int], latent: int, hidden: int, output: nn.Module) -> nn.Module:
    # Layers before a normalization have no bias, because the normalization would cancel it.
    start = (widths[0], *sides)
    sizes = [latent, *([hidden] if hidden else []), prod(start)]
    dense = [
        layer
        for a, b in pairwise(sizes)
        for layer in (nn.Linear(a, b, bias=False), nn.BatchNorm1d(b), nn.ReLU())
    ]
    doubling = [
        layer
        for a, b in pairwise(widths[:-1])
        for layer in (_double(a, b, bias=False), nn.BatchNorm2d(b), nn.ReLU())
    ]
    return nn.Sequential(
        *dense, nn.Unflatten(1, start), *doubling, _double(widths[-2], widths[-1], bias=True), output
    )


def _double(inputs: int, outputs: int, bias: bool) -> nn.Module:
    # With this padding, a kernel of 5 and stride 2 doubles the sides exactly.
    return nn.ConvTranspose2d(inputs, outputs, 5, stride=2, padding=2, output_padding=1, bias=bias)


def _critic(sides: Sides, widths: Sequence[int], hidden: int, batch_norm: bool) -> nn.Module:
    features = widths[-1] * prod(sides)
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        normalization = [nn.BatchNorm2d(b)] if batch_norm else []
        layers += [nn.Conv2d(a, b, 5, 2, 2, bias=not batch_norm), *normalization, nn.LeakyReLU(0.2)]
    layers.append(nn.Flatten())
    if hidden:
        normalization_1d = [nn.BatchNorm1d(hidden)] if batch_norm else []
        layers += [nn.Linear(features, hidden, bias=not batch_norm), *normalization_1d, nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(hidden or features, 1))


wgan = lsgan = gan  # on MNIST; they differ in the loss
lsgan_cifar = partial(gan, filters=(256, 512, 1024), critic_filters=(128, 256, 512), hidden=0)
