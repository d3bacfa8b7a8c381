"""PyDTNN's two small networks for 28 x 28 digits, generalized to any image size."""

from itertools import pairwise

from torch import nn

Shape = tuple[int, int, int]  # channels, height, width


def simplemlp(shape: Shape, classes: int, hidden: int = 512, layers: int = 3) -> nn.Module:
    """Build a perceptron of `layers` hidden layers (932,362 parameters for MNIST).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        hidden: units of each hidden layer.
        layers: number of hidden layers.
    """
    channels, height, width = shape
    widths = [channels * height * width] + [hidden] * layers
    blocks = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    return nn.Sequential(nn.Flatten(), *blocks, nn.Linear(widths[-1], classes))


def simplecnn(shape: Shape, classes: int, dropout: float = 0.5) -> nn.Module:
    """Build two convolutions and two dense layers (202,458 parameters for MNIST).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        dropout: probability of dropout before the last layer.
    """
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * (height // 2) * (width // 2), 128),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(128, classes),
    )
