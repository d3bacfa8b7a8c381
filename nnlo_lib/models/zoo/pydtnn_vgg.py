"""PyDTNN's small networks for CIFAR-10: one to three blocks of VGG, with dropout and batch normalization."""

from collections.abc import Sequence
from functools import partial

from torch import nn

from nnlo_lib.models.blocks import image_shape

FILTERS = (32, 64, 128)  # of both convolutions in blocks 1, 2 and 3


def vgg_blocks(
    shape: tuple[int, ...],
    classes: int,
    blocks: int = 1,
    hidden: int = 128,
    dropouts: Sequence[float] = (),
    batch_norm: bool = False,
) -> nn.Module:
    """Build blocks of two 3 x 3 convolutions and a pooling, then a hidden dense layer.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        blocks: number of blocks, 1 to 3.
        hidden: units of the hidden layer.
        dropouts: probability of dropout after each block and after the hidden layer; empty: no dropout.
        batch_norm: normalize after each ReLU.
    """
    if not 1 <= blocks <= len(FILTERS) or len(dropouts) not in (0, blocks + 1):
        raise ValueError(
            f"vgg_blocks: {blocks} blocks with {len(dropouts)} dropouts; use 1 to 3 blocks, with blocks + 1"
        )
    channels, height, width = image_shape(shape, 2**blocks, "vgg_blocks")
    rates = [*dropouts] or [0.0] * (blocks + 1)
    layers: list[nn.Module] = []
    for filters, rate in zip(FILTERS[:blocks], rates, strict=False):
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
