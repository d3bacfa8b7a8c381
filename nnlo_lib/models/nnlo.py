"""The networks of NNLO's examples."""

from itertools import pairwise

from torch import nn

Shape = tuple[int, int, int]  # channels, height, width


def cifar10(
    shape: Shape,
    classes: int,
    filters: tuple[int, int, int] = (48, 96, 192),
    dense: tuple[int, int] = (512, 256),
    dropout: tuple[float, float] = (0.25, 0.5),
) -> nn.Module:
    """Build NNLO's network for CIFAR-10: three convolutions, two dense layers (1,916,266 parameters)."""
    channels, height, width = shape
    widths = [filters[-1] * (height // 8) * (width // 8), *dense]
    convolutions = [
        layer
        for a, b in pairwise([channels, *filters])
        for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    perceptron = [
        layer
        for (a, b), rate in zip(pairwise(widths), dropout, strict=True)
        for layer in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(rate))
    ]
    return nn.Sequential(*convolutions, nn.Flatten(), *perceptron, nn.Linear(widths[-1], classes))
