"""NNLO's networks for images of collisions with top quarks: 150 x 94 pixels, 5 channels, 3 classes."""

from itertools import pairwise

from torch import nn

from nnlo_lib.models.blocks import image_shape


def topclass(
    shape: tuple[int, ...],
    classes: int,
    conv_layers: int = 2,
    dense_layers: int = 2,
    kernel: int = 3,
    dropout: float = 0.2,
) -> nn.Module:
    """Build the Keras network (40,964 parameters).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        conv_layers: number of convolutions, besides the last one with stride 2.
        dense_layers: number of hidden dense layers.
        kernel: side of the kernels, in pixels.
        dropout: probability of dropout after each hidden dense layer.
    """
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
    """Build the torch network (8,364 parameters).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        conv_layers: number of convolutions, besides the last one with stride 2.
        dense_layers: number of hidden dense layers.
        kernel: side of the kernels, in pixels.
        dropout: probability of dropout before the pooling and before the last layer.
    """
    channels = image_shape(shape, 20, "nnlo_topclass_torch")[0]
    widths = [100 // 2**layer for layer in range(dense_layers + 1)]
    pooling = [nn.Dropout(dropout), nn.AdaptiveMaxPool2d(10), nn.Flatten()]
    dense = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
    last = [nn.Dropout(dropout), nn.Linear(widths[-1], classes)]
    return nn.Sequential(*_convolutions(channels, conv_layers, kernel), *pooling, *dense, *last)


def _convolutions(channels: int, layers: int, kernel: int) -> list[nn.Module]:
    """Build convolutions with 10, 15, 20, 1, 5, 10 ... filters and one more that halves the sides.

    Args:
        channels: number of input channels.
        layers: number of convolutions before the last one.
        kernel: side of their kernels, in pixels.
    """
    widths = [channels, *(5 * ((layer + 2) % 5) or 1 for layer in range(layers))]
    same = [nn.Sequential(nn.Conv2d(a, b, kernel, padding="same"), nn.ReLU()) for a, b in pairwise(widths)]
    return [*same, nn.Conv2d(widths[-1], 1, 3, 2, 1), nn.ReLU()]
