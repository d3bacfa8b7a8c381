"""Densely connected networks (Huang et al. 2017, arXiv 1608.06993)."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from nnlo_lib.models.blocks import Shape, classifier, he_normal, image_shape, is_small


class Dense(nn.Module):
    """A layer that appends `growth` channels to its inputs.

    Args:
        inputs: number of input channels.
        growth: number of channels that the layer adds.
        bottleneck: first squeeze the inputs to 4 * growth channels (DenseNet-B).
        dropout: probability of dropout.
    """

    def __init__(self, inputs: int, growth: int, bottleneck: bool, dropout: float) -> None:
        super().__init__()
        squeeze = active_conv(inputs, 4 * growth, 1) if bottleneck else []
        middle = 4 * growth if bottleneck else inputs
        self.body = nn.Sequential(*squeeze, *active_conv(middle, growth, 3), nn.Dropout(dropout))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, inputs + growth, height, width)."""
        return torch.cat([inputs, self.body(inputs)], 1)


def active_conv(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    """Build batch normalization, ReLU, convolution.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        kernel: side of the kernel, in pixels.
    """
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(), convolution]


def densenet(
    shape: tuple[int, ...],
    classes: int,
    blocks: Sequence[int],
    growth: int,
    first: int,
    bottleneck: bool = True,
    compression: float = 0.5,
    dropout: float = 0.0,
) -> nn.Module:
    """Build dense blocks with transitions between them.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        blocks: number of layers in each dense block.
        growth: channels that each layer adds.
        first: channels of the first convolution, which is 3 x 3 without pooling for small images (CIFAR).
        bottleneck: squeeze the inputs of each layer to 4 * growth channels.
        compression: fraction of the channels that a transition keeps.
        dropout: probability of dropout after each layer.
    """
    layers, channels = _stem(image_shape(shape, 8, "densenet"), first), first
    for position, depth in enumerate(blocks):
        if position:
            kept = int(channels * compression)
            layers += [*active_conv(channels, kept, 1), nn.AvgPool2d(2)]
            channels = kept
        layers += [Dense(channels + i * growth, growth, bottleneck, dropout) for i in range(depth)]
        channels += depth * growth
    last = [nn.BatchNorm2d(channels), nn.ReLU(), *classifier(channels, classes)]
    return he_normal(nn.Sequential(*layers, *last))


def _stem(shape: Shape, outputs: int) -> list[nn.Module]:
    if is_small(shape):
        return [nn.Conv2d(shape[0], outputs, 3, padding=1, bias=False)]
    convolution = nn.Conv2d(shape[0], outputs, 7, 2, 3, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]


# Networks for CIFAR.
densenet40 = partial(densenet, blocks=(12, 12, 12), growth=12, first=16, bottleneck=False, compression=1.0)
densenet_bc100 = partial(densenet, blocks=(16, 16, 16), growth=12, first=24)
# Networks for ImageNet.
densenet121 = partial(densenet, blocks=(6, 12, 24, 16), growth=32, first=64)
densenet161 = partial(densenet, blocks=(6, 12, 36, 24), growth=48, first=96)
densenet169 = partial(densenet, blocks=(6, 12, 32, 32), growth=32, first=64)
densenet201 = partial(densenet, blocks=(6, 12, 48, 32), growth=32, first=64)
