"""VGG (Simonyan and Zisserman 2015, arXiv 1409.1556)."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from torch import nn

from nnlo_lib.models.blocks import dense_relu, he_normal, image_shape, is_small

FILTERS = (64, 128, 256, 512, 512)


def vgg(
    shape: tuple[int, ...],
    classes: int,
    depths: Sequence[int] = (1, 1, 2, 2, 2),
    batch_norm: bool = False,
    width: int | None = None,
    dropout: float = 0.5,
) -> nn.Module:
    """Build `depths` convolutions between five poolings and two dense layers of `width`.

    By default, the dense layers have 4096 units, or 512 for small images (CIFAR) as in PyDTNN.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        depths: number of convolutions in each of the five stages.
        batch_norm: normalize batches after each convolution.
        width: units of each hidden dense layer; None: 4096, or 512 for small images.
        dropout: probability of dropout after each hidden dense layer.
    """
    shape = image_shape(shape, 32, "vgg")
    width = width or (512 if is_small(shape) else 4096)
    layers: list[nn.Module] = []
    channels = shape[0]
    for filters, depth in zip(FILTERS, depths, strict=True):
        layers += _stage([channels, *[filters] * depth], batch_norm)
        channels = filters
    if not is_small(shape):
        layers.append(nn.AdaptiveAvgPool2d(7))
    # Five poolings divide the sides by 32.
    pixels = (shape[1] // 32) * (shape[2] // 32) if is_small(shape) else 49
    widths = [channels * pixels, width, width]
    hidden = [nn.Sequential(*dense_relu(a, b), nn.Dropout(dropout)) for a, b in pairwise(widths)]
    return he_normal(nn.Sequential(*layers, nn.Flatten(), *hidden, nn.Linear(width, classes)))


def _stage(widths: Sequence[int], batch_norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        normalization = [nn.BatchNorm2d(b)] if batch_norm else []
        layers += [nn.Conv2d(a, b, 3, padding=1), *normalization, nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)]


vgg11 = partial(vgg, depths=(1, 1, 2, 2, 2))
vgg13 = partial(vgg, depths=(2, 2, 2, 2, 2))
vgg16 = partial(vgg, depths=(2, 2, 3, 3, 3))
vgg19 = partial(vgg, depths=(2, 2, 4, 4, 4))
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (
    partial(network, batch_norm=True) for network in (vgg11, vgg13, vgg16, vgg19)
)
