"""The networks of NNLO's examples."""

from itertools import pairwise
from typing import Any

from torch import nn

from nnlo_lib.models.blocks import image_shape


def mnist(
    shape: tuple[int, ...],
    classes: int,
    filters: int = 32,
    kernel: int = 3,
    pool: int = 2,
    dense: int = 128,
    dropout: float = 0.25,
) -> nn.Module:
    """Build NNLO's Keras network for MNIST: two convolutions, two dense layers (600,810 parameters).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        filters: filters of each convolution.
        kernel: side of the kernels, in pixels.
        pool: side of the pooling, in pixels.
        dense: units of the hidden dense layer.
        dropout: probability of dropout after the pooling and after the hidden dense layer.
    """
    channels, *sides = image_shape(shape, 2 * kernel - 2 + pool, "nnlo_mnist")
    height, width = ((side - 2 * kernel + 2) // pool for side in sides)
    convolutions = [nn.Conv2d(channels, filters, kernel), nn.ReLU(), nn.Conv2d(filters, filters, kernel)]
    hidden = [nn.Linear(filters * height * width, dense), nn.ReLU(), nn.Dropout(dropout)]
    pooling = [nn.ReLU(), nn.MaxPool2d(pool), nn.Dropout(dropout), nn.Flatten()]
    return nn.Sequential(*convolutions, *pooling, *hidden, nn.Linear(dense, classes))


def mnist_torch(
    shape: tuple[int, ...], classes: int, kernel: int = 5, dense: int = 50, dropout: float = 0.5
) -> nn.Module:
    """Build NNLO's torch network for MNIST, with dropout of whole channels (21,840 parameters).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        kernel: side of the kernels, in pixels.
        dense: units of the hidden dense layer.
        dropout: probability of dropout of a channel, and of a hidden unit.
    """
    channels, *sides = image_shape(shape, 3 * kernel + 1, "nnlo_mnist_torch")
    height, width = (((side - kernel + 1) // 2 - kernel + 1) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 10, kernel), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, kernel), nn.Dropout2d(dropout), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(20 * height * width, dense), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dense, classes),
    )  # fmt: skip


def _replaced(values: tuple[Any, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values, each replaced by the other one in its place unless this is None."""
    if len(values) != len(others):
        raise ValueError(f"nnlo_cifar10 requires {len(others)} values instead of {tuple(values)}")
    return tuple(value if other is None else other for value, other in zip(values, others, strict=True))


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

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        filters: filters of each convolution.
        dense: units of each hidden dense layer.
        dropout: probability of dropout after each hidden dense layer.
        filters_1, filters_2, filters_3: entries of `filters`; None: unchanged.
        dense_1, dense_2: entries of `dense`; None: unchanged.
        dropout_1, dropout_2: entries of `dropout`; None: unchanged.
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
