"""Convolutional networks: AlexNet, VGG, MobileNet, U-Net, and small ones of PyDTNN and Theano-MPI."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from nnlo_lib.models.blocks import (
    classifier,
    conv_bn,
    dense_relu,
    dense_stack,
    he_normal,
    image_shape,
    is_small,
)

ALEXNET_2012_MIN_SIDE_PX = 67  # below it, the last pooling has no input
VGG_FILTERS = (64, 128, 256, 512, 512)
PYDTNN_FILTERS = (32, 64, 128)  # of both convolutions in blocks 1, 2 and 3
MOBILENET_FILTERS = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
NARROWING = (1, 3, 5, 11)  # positions of the separable convolutions with stride 2


def alexnet(shape: tuple[int, ...], classes: int, dropout: float = 0.5) -> nn.Module:
    """Build AlexNet in one tower (Krizhevsky 2014, arXiv 1404.5997; 61,100,840 parameters for ImageNet at 224 pixels).

    For small images, the first kernels and poolings are small, as in PyDTNN (23,272,266 parameters for
    CIFAR-10).
    """
    shape = image_shape(shape, 16, "alexnet")
    filters = (64, 192, 384, 256, 256)
    if not is_small(shape):
        features = [*_features(shape[0], filters, padding=2), nn.AdaptiveAvgPool2d(6)]
        return he_normal(nn.Sequential(*features, nn.Flatten(), *_perceptron(256 * 36, classes, dropout)))
    # The first stride and the three poolings halve the sides four times.
    inputs = 256 * (shape[1] // 16) * (shape[2] // 16)
    last = _perceptron(inputs, classes, dropout, first=False)
    return he_normal(nn.Sequential(*_small_features(shape[0], filters), nn.Flatten(), *last))


def alexnet_2012(
    shape: tuple[int, ...], classes: int, dropout: float = 0.5, groups: int = 2, normalize: bool = True
) -> nn.Module:
    """Build AlexNet of 2012 (Krizhevsky et al.) for 227 pixels (60,965,224 parameters), as in Theano-MPI.

    With `groups` 1 and without `normalize`, it is PyDTNN's AlexNet (62,378,344 parameters).

    Args:
        groups: number of independent towers in layers 2, 4 and 5.
        normalize: normalize across channels after layers 1 and 2.
    """
    filters = (96, 256, 384, 384, 256)
    features = _features(
        image_shape(shape, ALEXNET_2012_MIN_SIDE_PX, "alexnet_2012")[0], filters, 0, groups, normalize
    )
    last = _perceptron(256 * 36, classes, dropout, first=False)
    return he_normal(nn.Sequential(*features, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *last))


def _features(
    channels: int, filters: tuple[int, ...], padding: int, groups: int = 1, normalize: bool = False
) -> list[nn.Module]:
    one, two, three, four, five = filters
    # n, alpha, beta and k of section 3.3 of the paper (torch divides alpha by n).
    across = [nn.LocalResponseNorm(5, 1e-4, 0.75, 2.0)] if normalize else []
    return [
        nn.Conv2d(channels, one, 11, stride=4, padding=padding), nn.ReLU(), *across, nn.MaxPool2d(3, 2),
        nn.Conv2d(one, two, 5, padding=2, groups=groups), nn.ReLU(), *across, nn.MaxPool2d(3, 2),
        nn.Conv2d(two, three, 3, padding=1), nn.ReLU(),
        nn.Conv2d(three, four, 3, padding=1, groups=groups), nn.ReLU(),
        nn.Conv2d(four, five, 3, padding=1, groups=groups), nn.ReLU(), nn.MaxPool2d(3, 2),
    ]  # fmt: skip


def _small_features(channels: int, filters: tuple[int, ...]) -> list[nn.Module]:
    one, two, three, four, five = filters
    return [
        nn.Conv2d(channels, one, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(one, two, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(two, three, 3, padding=1), nn.ReLU(),
        nn.Conv2d(three, four, 3, padding=1), nn.ReLU(),
        nn.Conv2d(four, five, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    ]  # fmt: skip


def _perceptron(inputs: int, classes: int, dropout: float, first: bool = True) -> list[nn.Module]:
    """Build two hidden dense layers of 4096 units, with dropout `first` or behind them, and the last layer."""
    hidden = [dense_relu(inputs, 4096), dense_relu(4096, 4096)]
    drop = nn.Dropout(dropout)
    blocks = [[drop, *block] if first else [*block, drop] for block in hidden]
    return [layer for block in blocks for layer in block] + [nn.Linear(4096, classes)]


def vgg(
    shape: tuple[int, ...],
    classes: int,
    depths: Sequence[int] = (1, 1, 2, 2, 2),
    batch_norm: bool = False,
    width: int | None = None,
    dropout: float = 0.5,
) -> nn.Module:
    """Build VGG (Simonyan and Zisserman 2015, arXiv 1409.1556): `depths` convolutions between five poolings.

    Two dense layers of `width` follow, by default 4096, or 512 for small images (CIFAR) as in PyDTNN.
    """
    shape = image_shape(shape, 32, "vgg")
    width = width or (512 if is_small(shape) else 4096)
    layers: list[nn.Module] = []
    channels = shape[0]
    for filters, depth in zip(VGG_FILTERS, depths, strict=True):
        for _ in range(depth):
            normalization = [nn.BatchNorm2d(filters)] if batch_norm else []
            layers += [nn.Conv2d(channels, filters, 3, padding=1), *normalization, nn.ReLU()]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    if not is_small(shape):
        layers.append(nn.AdaptiveAvgPool2d(7))
    # Five poolings divide the sides by 32.
    pixels = (shape[1] // 32) * (shape[2] // 32) if is_small(shape) else 49
    widths = [channels * pixels, width, width]
    hidden = [nn.Sequential(*dense_relu(a, b), nn.Dropout(dropout)) for a, b in pairwise(widths)]
    return he_normal(nn.Sequential(*layers, nn.Flatten(), *hidden, nn.Linear(width, classes)))


vgg11 = partial(vgg, depths=(1, 1, 2, 2, 2))
vgg13 = partial(vgg, depths=(2, 2, 2, 2, 2))
vgg16 = partial(vgg, depths=(2, 2, 3, 3, 3))
vgg19 = partial(vgg, depths=(2, 2, 4, 4, 4))
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (
    partial(network, batch_norm=True) for network in (vgg11, vgg13, vgg16, vgg19)
)


def mobilenet_v1(shape: tuple[int, ...], classes: int, width: float = 1.0, dropout: float = 0.0) -> nn.Module:
    """Build 13 separable convolutions of `width` times the filters (4,231,976 parameters for ImageNet).

    Howard et al. 2017, arXiv 1704.04861. For small images (CIFAR), the first convolution keeps height and width.
    """
    shape = image_shape(shape, 16, "mobilenet_v1")
    inputs = int(32 * width)
    layers = [conv_bn(shape[0], inputs, 3, 1 if is_small(shape) else 2)]
    for position, filters in enumerate(MOBILENET_FILTERS):
        outputs = int(filters * width)
        each = nn.Conv2d(inputs, inputs, 3, 2 if position in NARROWING else 1, 1, groups=inputs, bias=False)
        layers.append(nn.Sequential(each, nn.BatchNorm2d(inputs), nn.ReLU(), conv_bn(inputs, outputs, 1)))
        inputs = outputs
    return he_normal(nn.Sequential(*layers, *classifier(inputs, classes, dropout)))


def unet(shape: tuple[int, ...], classes: int, filters: int = 64, levels: int = 4) -> nn.Module:
    """Build the network for images of `shape` (channels, height, width)."""
    if len(shape) != 3 or any(side % 2**levels for side in shape[1:]):
        raise ValueError(
            f"unet with {levels} levels requires images (channels, height, width) with sides that are multiples of "
            f"{2**levels}, but the samples are {shape}"
        )
    return UNet(shape[0], classes, filters, levels)


class UNet(nn.Module):
    """U-Net (Ronneberger, Fischer and Brox 2015), padded and with batch normalization: scores of each pixel's classes.

    Args:
        filters: channels of the first level; doubled on each level below.
    """

    def __init__(self, channels: int, classes: int, filters: int, levels: int) -> None:
        super().__init__()
        widths = [filters * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(map(DoubleConvolution, [channels, *widths[:-1]], widths))
        self.pool = nn.MaxPool2d(2)
        above = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(below, width, 2, stride=2) for below, width in above)
        self.merge = nn.ModuleList(DoubleConvolution(below, width) for below, width in above)
        self.last = nn.Conv2d(filters, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return (samples, classes, height, width) from images (samples, channels, height, width)."""
        kept = [self.down[0](images)]
        for level in list(self.down)[1:]:
            kept.append(level(self.pool(kept[-1])))
        states = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            states = merge(torch.cat([kept.pop(), up(states)], 1))
        scores: Tensor = self.last(states)
        return scores


class DoubleConvolution(nn.Sequential):
    """Two 3 x 3 convolutions, each with batch normalization and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip


def vgg_blocks(
    shape: tuple[int, ...],
    classes: int,
    blocks: int = 1,
    hidden: int = 128,
    dropouts: Sequence[float] = (),
    batch_norm: bool = False,
) -> nn.Module:
    """Build PyDTNN's networks for CIFAR-10: blocks of two 3 x 3 convolutions and a pooling, then a hidden dense layer."""
    if not 1 <= blocks <= len(PYDTNN_FILTERS) or len(dropouts) not in (0, blocks + 1):
        raise ValueError(
            f"vgg_blocks: {blocks} blocks with {len(dropouts)} dropouts; use 1 to 3 blocks, with blocks + 1"
        )
    channels, height, width = image_shape(shape, 2**blocks, "vgg_blocks")
    rates = [*dropouts] or [0.0] * (blocks + 1)
    layers: list[nn.Module] = []
    for filters, rate in zip(PYDTNN_FILTERS[:blocks], rates, strict=False):
        for inputs in (channels, filters):
            layers += [nn.Conv2d(inputs, filters, 3, padding=1), nn.ReLU()]
            layers += [nn.BatchNorm2d(filters)] if batch_norm else []
        layers += [nn.MaxPool2d(2), *_dropout(rate)]
        channels = filters
    layers += [nn.Flatten(), nn.Linear(channels * (height >> blocks) * (width >> blocks), hidden), nn.ReLU()]
    layers += [nn.BatchNorm1d(hidden)] if batch_norm else []
    return _he_uniform(nn.Sequential(*layers, *_dropout(rates[-1]), nn.Linear(hidden, classes)))


def _dropout(rate: float) -> list[nn.Module]:
    return [nn.Dropout(rate)] if rate else []


def _he_uniform(network: nn.Sequential) -> nn.Sequential:
    """Draw all layers but the last from U(-b, b) with b = sqrt(6 / fan in) (He et al. 2015)."""
    for layer in list(network)[:-1]:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


vgg1, vgg2, vgg3 = (partial(vgg_blocks, blocks=blocks) for blocks in (1, 2, 3))
vgg3do = partial(vgg3, dropouts=(0.2, 0.2, 0.2, 0.2))
vgg3do2 = partial(vgg3, dropouts=(0.2, 0.3, 0.4, 0.5))
vgg3dobn = partial(vgg3do2, batch_norm=True, hidden=512)


def simplemlp(shape: tuple[int, ...], classes: int, hidden: int = 512, layers: int = 3) -> nn.Module:
    """Build PyDTNN's perceptron of `layers` hidden layers (932,362 parameters for MNIST)."""
    widths = [prod(shape)] + [hidden] * layers
    return nn.Sequential(nn.Flatten(), *dense_stack(widths), nn.Linear(widths[-1], classes))


def simplecnn(
    shape: tuple[int, ...], classes: int, dropout: float = 0.5, padding: Literal[0, 1] = 1
) -> nn.Module:
    """Build PyDTNN's two convolutions and two dense layers (202,458 parameters for MNIST; 149,210 with padding 0).

    Args:
        padding: zeros on each side before a convolution: 1, or 0 as in PyDTNN of 2020.
    """
    # Without padding, each convolution removes two rows and columns.
    channels, height, width = image_shape(shape, 2 if padding else 6, "simplecnn")
    lost = 4 * (1 - padding)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=padding), nn.ReLU(),
        nn.Conv2d(4, 8, 3, padding=padding), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * ((height - lost) // 2) * ((width - lost) // 2), 128), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(128, classes),
    )  # fmt: skip


def theanompi_cifar10(shape: tuple[int, ...], classes: int, dropout: float = 0.5) -> nn.Module:
    """Build Theano-MPI's three convolutions and two dense layers for crops of 28 x 28 (351,946 parameters)."""
    channels, *sides = image_shape(shape, 20, "theanompi_cifar10")
    height, width = (((side - 4) // 2 - 4) // 2 - 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(128, 64, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * height * width, 256), nn.ReLU(), nn.Dropout(dropout), nn.Linear(256, classes),
    )  # fmt: skip
