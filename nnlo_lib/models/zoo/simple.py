"""PyDTNN's two small networks for 28 x 28 digits, generalized to any image size."""

from itertools import pairwise
from math import prod
from typing import Literal

from torch import nn

from nnlo_lib.models.blocks import image_shape


def simplemlp(shape: tuple[int, ...], classes: int, hidden: int = 512, layers: int = 3) -> nn.Module:
    """Build a perceptron of `layers` hidden layers (932,362 parameters for MNIST).

    Args:
        shape: shape of a sample: channels, height and width of an image, or of any other array.
        classes: number of outputs.
        hidden: units of each hidden layer.
        layers: number of hidden layers.
    """
    widths = [prod(shape)] + [hidden] * layers
    blocks = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(nn.Flatten(), *blocks, nn.Linear(widths[-1], classes))


def simplecnn(
    shape: tuple[int, ...], classes: int, dropout: float = 0.5, padding: Literal[0, 1] = 1
) -> nn.Module:
    """Build two convolutions and two dense layers (202,458 parameters for MNIST; 149,210 with padding 0).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        dropout: probability of dropout before the last layer.
        padding: zeros on each side before a convolution: 1, or 0 as in PyDTNN of 2020.
    """
    # Without padding, each convolution removes two rows and columns.
    channels, height, width = image_shape(shape, 2 if padding else 6, "simplecnn")
    lost = 4 * (1 - padding)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=padding),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * ((height - lost) // 2) * ((width - lost) // 2), 128),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(128, classes),
    )
