"""Generators and critics of images (Theano-MPI's WGAN and LS-GAN) and of calorimeter showers."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from torch import Tensor, nn

from nnlo_lib.models.blocks import activation_named, image_shape

Sides = tuple[int, int]  # height, width
SHOWER_SHAPE = (1, 25, 25, 25)


class Gan(nn.Module):
    """Two networks: one makes samples (n, *shape) from noise (n, latent), the other rates them."""

    def __init__(self, generator: nn.Module, critic: nn.Module, latent: int) -> None:
        super().__init__()
        self.generator, self.critic, self.latent = generator, critic, latent

    def forward(self, noise: Tensor) -> Tensor:
        """Return samples (n, *shape) from noise (n, latent)."""
        samples: Tensor = self.generator(noise)
        return samples


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

    Theano-MPI's WGAN and LS-GAN (arXiv 1701.07875, 1611.04076). The critic returns (n, 1) without bounds.

    Args:
        filters: filters of the generator, starting at the large end.
        critic_filters: filters of the critic, as many as `filters`; by default, the same.
        hidden: units of the dense layer at the small end; 0 leaves the layer out.
        batch_norm: normalize batches in the critic; must be off for a gradient penalty.
        output: final activation of the generator, `sigmoid` for pixels in [0, 1], `tanh` for [-1, 1].
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


def calorimeter_gan(shape: tuple[int, ...], classes: int = 0, latent: int = 200, dropout: float = 0.2) -> Gan:
    """Build NNLO's generator (872,808 parameters) and critic (73,402) of calorimeter showers (1, 25, 25, 25).

    Khattak et al. 2018, Carminati et al. 2017. The noise of a shower is multiplied by its particle's energy.
    """
    if tuple(shape) != SHOWER_SHAPE:
        raise ValueError(f"calorimeter_gan requires samples {SHOWER_SHAPE}, but the samples are {shape}")
    return Gan(_shower_generator(latent), _shower_critic(dropout), latent)


def _shower_generator(latent: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(latent, 3136), nn.Unflatten(1, (8, 7, 7, 8)),
        nn.Conv3d(8, 64, (6, 6, 8), padding="same"), nn.LeakyReLU(0.3), nn.BatchNorm3d(64),
        nn.Upsample(scale_factor=2), nn.ZeroPad3d((0, 0, 2, 2, 2, 2)),
        nn.Conv3d(64, 6, (6, 5, 8)), nn.LeakyReLU(0.3), nn.BatchNorm3d(6),
        nn.Upsample(scale_factor=(2, 2, 3)), nn.ZeroPad3d((3, 3, 0, 0, 1, 1)),
        nn.Conv3d(6, 6, (3, 3, 8)), nn.LeakyReLU(0.3), nn.Conv3d(6, 1, 2, bias=False), nn.ReLU(),
    )  # fmt: skip


def _shower_critic(dropout: float) -> nn.Module:
    first = [nn.Conv3d(1, 32, 5, padding=2), nn.LeakyReLU(0.3), nn.Dropout(dropout)]
    blocks = [
        nn.Sequential(nn.Conv3d(inputs, 8, 5, padding=padding), nn.LeakyReLU(0.3), nn.BatchNorm3d(8), nn.Dropout(dropout))
        for inputs, padding in ((32, 2), (8, 2), (8, 1))
    ]  # fmt: skip
    # The last convolution reduces the sides from 25 to 23 cells, the pooling to 11. 0.3 is Keras's default
    # slope.
    return Heads(nn.Sequential(*first, *blocks, nn.AvgPool3d(2), nn.Flatten()), 8 * 11**3)


class Heads(nn.Module):
    """Outputs of the critic for showers: reality (a logit), energy of the particle, sum of the cells."""

    def __init__(self, features: nn.Module, width: int) -> None:
        super().__init__()
        self.features = features
        self.real, self.energy = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, showers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, energies and sums, each (samples, 1)."""
        features = self.features(showers)
        return self.real(features), self.energy(features), showers.flatten(1).sum(1, keepdim=True)


def callable_on_samples(module: nn.Module) -> nn.Module:
    """Return a module that takes samples: the model itself, or generator and critic of a GAN as one model."""
    return GeneratorAndCritic(module) if hasattr(module, "critic") and hasattr(module, "latent") else module


class GeneratorAndCritic(nn.Module):
    """Generator and critic of a GAN as one model that takes samples, for the table of its layers."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.generator, self.critic, self.latent = module.generator, module.critic, module.latent

    def forward(self, samples: Tensor) -> tuple[Any, Any]:
        """Return samples generated from zeros, as many as given, and the critic's outputs for the given samples."""
        return self.generator(samples.new_zeros(len(samples), self.latent)), self.critic(samples)
