"""Networks of NNLO: JEDI-net, its examples (MNIST, CIFAR-10) and images of collisions with top quarks."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.models.blocks import activation_named, dense_stack, image_shape


def jedi_net(
    shape: tuple[int, ...],
    classes: int,
    hidden: int = 50,
    effects: int = 14,
    outputs: int = 10,
    activation: str = "selu",
    effect_activation: str | None = None,
    post_activation: str | None = None,
    score_activation: str | None = None,
) -> nn.Module:
    """Build JEDI-net for samples (features, particles) (8,329 parameters for (16, 150) and 5 classes).

    An interaction network over the particles of a jet (Moreno et al. 2020, arXiv 1908.05318). `effects` and `outputs`
    are the paper's D_E and D_O: effects on each particle, and its values after them. The second hidden layer of each
    perceptron has half of the `hidden` units; the networks of pairs, of particles and of scores may have activations of their own.
    """
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(
            f"jedi_net requires samples (features, 2 or more particles), but the samples are {shape}"
        )
    features = shape[0]
    widths = (
        [2 * features, hidden, hidden // 2, effects],
        [features + effects, hidden, hidden // 2, outputs],
        [outputs, hidden, hidden // 2],
    )
    layers = (
        activation_named(each or activation)
        for each in (effect_activation, post_activation, score_activation)
    )
    effect, post, last = (nn.Sequential(*dense_stack(*each)) for each in zip(widths, layers, strict=True))
    return JediNet(effect, post, nn.Sequential(last, nn.Linear(hidden // 2, classes)))


class JediNet(nn.Module):
    """Scores of a jet from three networks: of pairs, of each particle with its effects, and of the sum over particles."""

    def __init__(self, effect: nn.Module, post: nn.Module, scores: nn.Module) -> None:
        super().__init__()
        self.interaction, self.post, self.scores = Interaction(effect), post, scores

    def forward(self, jets: Tensor) -> Tensor:
        """Return (samples, classes) from (samples, features, particles)."""
        particles = jets.transpose(1, 2)
        both = torch.cat([particles, self.interaction(particles)], 2)
        scores: Tensor = self.scores(self.post(both).sum(1))
        return scores


class Interaction(nn.Module):
    """Effects of all others on each particle: the sum of `effect` over its pairs (equations 1 to 3)."""

    def __init__(self, effect: nn.Module) -> None:
        super().__init__()
        self.effect = effect

    def forward(self, particles: Tensor) -> Tensor:
        """Return (samples, particles, effects) from (samples, particles, features)."""
        count = particles.shape[1]
        # Sorted by receiver, so that `view` below groups the pairs of each receiver.
        receivers, senders = (
            (~torch.eye(count, dtype=torch.bool, device=particles.device)).nonzero().unbind(1)
        )
        pairs = torch.cat([particles[:, receivers], particles[:, senders]], 2)
        effects: Tensor = self.effect(pairs)
        return effects.view(len(particles), count, count - 1, -1).sum(2)


def mnist(
    shape: tuple[int, ...],
    classes: int,
    filters: int = 32,
    kernel: int = 3,
    pool: int = 2,
    dense: int = 128,
    dropout: float = 0.25,
) -> nn.Module:
    """Build NNLO's Keras network for MNIST: two convolutions, two dense layers (600,810 parameters)."""
    channels, *sides = image_shape(shape, 2 * kernel - 2 + pool, "nnlo_mnist")
    height, width = ((side - 2 * kernel + 2) // pool for side in sides)
    convolutions = [nn.Conv2d(channels, filters, kernel), nn.ReLU(), nn.Conv2d(filters, filters, kernel)]
    hidden = [nn.Linear(filters * height * width, dense), nn.ReLU(), nn.Dropout(dropout)]
    pooling = [nn.ReLU(), nn.MaxPool2d(pool), nn.Dropout(dropout), nn.Flatten()]
    return nn.Sequential(*convolutions, *pooling, *hidden, nn.Linear(dense, classes))


def mnist_torch(
    shape: tuple[int, ...], classes: int, kernel: int = 5, dense: int = 50, dropout: float = 0.5
) -> nn.Module:
    """Build NNLO's torch network for MNIST, with dropout of whole channels (21,840 parameters)."""
    channels, *sides = image_shape(shape, 3 * kernel + 1, "nnlo_mnist_torch")
    height, width = (((side - kernel + 1) // 2 - kernel + 1) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 10, kernel), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, kernel), nn.Dropout2d(dropout), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(20 * height * width, dense), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dense, classes),
    )  # fmt: skip


def cifar10(
    shape: tuple[int, ...],
    classes: int,
    filters: tuple[int, int, int] = (48, 96, 192),
    dense: tuple[int, int] = (512, 256),
    dropout: tuple[float, float] = (0.25, 0.5),
    filters_1: int | None = None,
    filters_2: int | None = None,
    filters_3: int | None = None,
    dense_1: int | None = None,
    dense_2: int | None = None,
    dropout_1: float | None = None,
    dropout_2: float | None = None,
) -> nn.Module:
    """Build NNLO's network for CIFAR-10: three convolutions, two dense layers (1,916,266 parameters).

    A search can set one entry of `filters`, `dense` and `dropout` by its number.
    """
    channels, height, width = image_shape(shape, 8, "nnlo_cifar10")
    kernels = _replaced(filters, (filters_1, filters_2, filters_3))
    units, rates = _replaced(dense, (dense_1, dense_2)), _replaced(dropout, (dropout_1, dropout_2))
    widths = [kernels[-1] * (height // 8) * (width // 8), *units]
    convolutions = [
        layer
        for a, b in pairwise([channels, *kernels])
        for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    perceptron = [
        layer
        for (a, b), rate in zip(pairwise(widths), rates, strict=True)
        for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(rate))
    ]
    return nn.Sequential(*convolutions, nn.Flatten(), *perceptron, nn.Linear(widths[-1], classes))


def _replaced(values: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values, each replaced by the other one in its place unless this is None."""
    if len(values) != len(others):
        raise ValueError(f"nnlo_cifar10 requires {len(others)} values instead of {tuple(values)}")
    return tuple(value if other is None else other for value, other in zip(values, others, strict=True))


def topclass(
    shape: tuple[int, ...],
    classes: int,
    conv_layers: int = 2,
    dense_layers: int = 2,
    kernel: int = 3,
    dropout: float = 0.2,
) -> nn.Module:
    """Build NNLO's Keras network for collisions with top quarks, 5 x 150 x 94 pixels (40,964 parameters)."""
    channels, height, width = image_shape(shape, 20, "nnlo_topclass")
    # The last convolution halves the sides, rounded up; the pooling divides them by 10.
    inputs = ((height + 1) // 2 // 10) * ((width + 1) // 2 // 10)
    widths = [inputs, *(250 // 2**layer for layer in range(dense_layers))]
    convolutions = [*_convolutions(channels, conv_layers, kernel), nn.MaxPool2d(10), nn.Flatten()]
    dense = [nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout)) for a, b in pairwise(widths)]
    return nn.Sequential(*convolutions, *dense, nn.Linear(widths[-1], classes))


def topclass_torch(
    shape: tuple[int, ...],
    classes: int,
    conv_layers: int = 2,
    dense_layers: int = 2,
    kernel: int = 3,
    dropout: float = 0.5,
) -> nn.Module:
    """Build NNLO's torch network for collisions with top quarks, 5 x 150 x 94 pixels (8,364 parameters)."""
    channels = image_shape(shape, 20, "nnlo_topclass_torch")[0]
    widths = [100 // 2**layer for layer in range(dense_layers + 1)]
    pooling = [nn.Dropout(dropout), nn.AdaptiveMaxPool2d(10), nn.Flatten()]
    dense = dense_stack(widths)
    last = [nn.Dropout(dropout), nn.Linear(widths[-1], classes)]
    return nn.Sequential(*_convolutions(channels, conv_layers, kernel), *pooling, *dense, *last)


def _convolutions(channels: int, layers: int, kernel: int) -> list[nn.Module]:
    """Build `layers` convolutions with 10, 15, 20, 1, 5, 10 ... filters and one more that halves the sides."""
    widths = [channels, *(5 * ((layer + 2) % 5) or 1 for layer in range(layers))]
    same = [nn.Sequential(nn.Conv2d(a, b, kernel, padding="same"), nn.ReLU()) for a, b in pairwise(widths)]
    return [*same, nn.Conv2d(widths[-1], 1, 3, 2, 1), nn.ReLU()]
