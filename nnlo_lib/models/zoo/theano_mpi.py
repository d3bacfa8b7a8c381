"""Theano-MPI's network for CIFAR-10."""

from torch import nn

from nnlo_lib.models.blocks import image_shape


def theanompi_cifar10(shape: tuple[int, ...], classes: int, dropout: float = 0.5) -> nn.Module:
    """Build three convolutions and two dense layers for crops of 28 x 28 (351,946 parameters).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        dropout: probability of dropout before the last layer.
    """
    channels, *sides = image_shape(shape, 20, "theanompi_cifar10")
    height, width = (((side - 4) // 2 - 4) // 2 - 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 64, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * height * width, 256), nn.ReLU(), nn.Dropout(dropout), nn.Linear(256, classes),
    )  # fmt: skip
