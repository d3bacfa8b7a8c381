"""GoogLeNet, Inception v3 and DenseNet: networks whose layers concatenate channels."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from nnlo_lib.models.blocks import (
    Auxiliary,
    Branches,
    Shape,
    chain,
    classifier,
    conv_bn,
    he_normal,
    image_shape,
    is_small,
)

# Table 1 of GoogLeNet's paper, one row per module: inputs, 1 x 1, (1 x 1, 3 x 3), (1 x 1, 5 x 5), 1 x 1 after pooling
THREE = (
    (192, 64, (96, 128), (16, 32), 32), (256, 128, (128, 192), (32, 96), 64),
)  # fmt: skip
FOUR = (
    (480, 192, (96, 208), (16, 48), 64), (512, 160, (112, 224), (24, 64), 64), (512, 128, (128, 256), (24, 64), 64),
    (512, 112, (144, 288), (32, 64), 64), (528, 256, (160, 320), (32, 128), 128),
)  # fmt: skip
FIVE = ((832, 256, (160, 320), (32, 128), 128), (832, 384, (192, 384), (48, 128), 128))
TALL, WIDE = (7, 1), (1, 7)


def googlenet(
    shape: tuple[int, ...], classes: int, auxiliary: bool = False, dropout: float = 0.2, large_kernel: int = 3
) -> nn.Module:
    """Build nine inception modules (6,624,904 parameters for ImageNet, 13,004,888 with `auxiliary`).

    Szegedy et al. 2015, arXiv 1409.4842, with batch normalization. For small images (CIFAR), the stem is a single convolution.

    Args:
        auxiliary: add two auxiliary classifiers; the result in training mode is then a tuple of three scores.
        large_kernel: side of the convolutions that are 5 x 5 in the paper; 3 in widely used pretrained
            weights.
    """
    shape = image_shape(shape, 8, "googlenet")
    pool = nn.MaxPool2d(3, 2, 1)
    three, four, five = ([_inception(*each, large_kernel) for each in stage] for stage in (THREE, FOUR, FIVE))
    parts = [
        nn.Sequential(*_googlenet_stem(shape), *three, pool, four[0]),
        nn.Sequential(*four[1:4]),
    ]
    last = nn.Sequential(
        four[4], nn.MaxPool2d(2, 2, ceil_mode=True), *five, *classifier(1024, classes, dropout)
    )
    if not auxiliary:
        return he_normal(nn.Sequential(*parts, last))
    heads = [_googlenet_head(inputs, classes) for inputs in (512, 528)]
    return he_normal(Auxiliary(parts, heads, last))


def _googlenet_stem(shape: Shape) -> list[nn.Module]:
    if is_small(shape):
        return [conv_bn(shape[0], 192, 3)]
    first = [conv_bn(shape[0], 64, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True)]
    return [*first, chain(64, (64, 1), (192, 3)), nn.MaxPool2d(3, 2, ceil_mode=True)]


def _inception(
    inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int, large: int
) -> nn.Module:
    pooling = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_bn(inputs, pooled, 1))
    third = chain(inputs, (five[0], 1), (five[1], large))
    return Branches([conv_bn(inputs, one, 1), chain(inputs, (three[0], 1), (three[1], 3)), third, pooling])


def _googlenet_head(inputs: int, classes: int) -> nn.Module:
    # 1,024 units and 70 % dropout: section 5 of the paper.
    dense = nn.Sequential(nn.Linear(2048, 1024), nn.ReLU(), nn.Dropout(0.7), nn.Linear(1024, classes))
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), conv_bn(inputs, 128, 1), nn.Flatten(), dense)


def inception_v3(
    shape: tuple[int, ...], classes: int, auxiliary: bool = False, dropout: float = 0.5
) -> nn.Module:
    """Build Inception v3 for 299 pixels (23,834,568 parameters for ImageNet, 27,161,264 with `auxiliary`).

    Szegedy et al. 2016, arXiv 1512.00567. With `auxiliary`, the result in training mode is a tuple of two scores.

    Args:
        auxiliary: add an auxiliary classifier.
    """
    channels = image_shape(shape, 75, "inception_v3")[0]
    parts = [_inception_stem(channels), _five(192, 32), _five(256, 64), _five(288, 64), _narrow_five(288)]
    parts += [_six(filters) for filters in (128, 160, 160, 192)]
    last = nn.Sequential(_narrow_six(), _seven(1280), _seven(2048), *classifier(2048, classes, dropout))
    first = nn.Sequential(*parts)
    network = (
        Auxiliary([first], [_inception_head(classes)], last) if auxiliary else nn.Sequential(first, last)
    )
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            # As in the authors' TensorFlow code and in torchvision; torch's default is 1e-5.
            layer.eps = 1e-3
    return he_normal(network)


def _inception_stem(channels: int) -> nn.Module:
    first = [conv_bn(channels, 32, 3, 2, 0), conv_bn(32, 32, 3, 1, 0), conv_bn(32, 64, 3), nn.MaxPool2d(3, 2)]
    return nn.Sequential(*first, conv_bn(64, 80, 1), conv_bn(80, 192, 3, 1, 0), nn.MaxPool2d(3, 2))


def _five(inputs: int, pooled: int) -> nn.Module:
    """Build figure 5 of the paper: 5 x 5 and two 3 x 3 convolutions side by side, at 35 pixels."""
    five, three = chain(inputs, (48, 1), (64, 5)), chain(inputs, (64, 1), (96, 3), (96, 3))
    return Branches([conv_bn(inputs, 64, 1), five, three, _pooled(inputs, pooled)])


def _narrow_five(inputs: int) -> nn.Module:
    twice = nn.Sequential(chain(inputs, (64, 1), (96, 3)), conv_bn(96, 96, 3, 2, 0))
    return Branches([conv_bn(inputs, 384, 3, 2, 0), twice, nn.MaxPool2d(3, 2)])


def _six(filters: int) -> nn.Module:
    """Build figure 6: 7 x 7 convolutions as 1 x 7 and 7 x 1, at 17 pixels."""
    once = chain(768, (filters, 1), (filters, WIDE), (192, TALL))
    twice = chain(768, (filters, 1), (filters, TALL), (filters, WIDE), (filters, TALL), (192, WIDE))
    return Branches([conv_bn(768, 192, 1), once, twice, _pooled(768, 192)])


def _narrow_six() -> nn.Module:
    three = nn.Sequential(conv_bn(768, 192, 1), conv_bn(192, 320, 3, 2, 0))
    seven = nn.Sequential(chain(768, (192, 1), (192, WIDE), (192, TALL)), conv_bn(192, 192, 3, 2, 0))
    return Branches([three, seven, nn.MaxPool2d(3, 2)])


def _seven(inputs: int) -> nn.Module:
    """Build figure 7: 1 x 3 and 3 x 1 convolutions side by side, at 8 pixels."""
    once = nn.Sequential(conv_bn(inputs, 384, 1), _both())
    twice = nn.Sequential(chain(inputs, (448, 1), (384, 3)), _both())
    return Branches([conv_bn(inputs, 320, 1), once, twice, _pooled(inputs, 192)])


def _both() -> nn.Module:
    return Branches([conv_bn(384, 384, (1, 3)), conv_bn(384, 384, (3, 1))])


def _pooled(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_bn(inputs, outputs, 1))


def _inception_head(classes: int) -> nn.Module:
    convolutions = nn.Sequential(nn.AvgPool2d(5, 3), conv_bn(768, 128, 1), conv_bn(128, 768, 5, 1, 0))
    return nn.Sequential(convolutions, *classifier(768, classes))


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
    """Build dense blocks with transitions between them (Huang et al. 2017, arXiv 1608.06993).

    Args:
        blocks: number of layers in each dense block.
        growth: channels that each layer adds.
        first: channels of the first convolution, which is 3 x 3 without pooling for small images (CIFAR).
        bottleneck: squeeze the inputs of each layer to 4 * growth channels.
        compression: fraction of the channels that a transition keeps.
    """
    layers, channels = _densenet_stem(image_shape(shape, 8, "densenet"), first), first
    for position, depth in enumerate(blocks):
        if position:
            kept = int(channels * compression)
            layers += [*active_conv(channels, kept, 1), nn.AvgPool2d(2)]
            channels = kept
        layers += [Dense(channels + i * growth, growth, bottleneck, dropout) for i in range(depth)]
        channels += depth * growth
    last = [nn.BatchNorm2d(channels), nn.ReLU(), *classifier(channels, classes)]
    return he_normal(nn.Sequential(*layers, *last))


def _densenet_stem(shape: Shape, outputs: int) -> list[nn.Module]:
    if is_small(shape):
        return [nn.Conv2d(shape[0], outputs, 3, padding=1, bias=False)]
    convolution = nn.Conv2d(shape[0], outputs, 7, 2, 3, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]


class Dense(nn.Module):
    """A layer that appends `growth` channels to its inputs.

    Args:
        bottleneck: first squeeze the inputs to 4 * growth channels (DenseNet-B).
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
    """Build batch normalization, ReLU, convolution."""
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(), convolution]


# Networks for CIFAR.
densenet40 = partial(densenet, blocks=(12, 12, 12), growth=12, first=16, bottleneck=False, compression=1.0)
densenet_bc100 = partial(densenet, blocks=(16, 16, 16), growth=12, first=24)
# Networks for ImageNet.
densenet121 = partial(densenet, blocks=(6, 12, 24, 16), growth=32, first=64)
densenet161 = partial(densenet, blocks=(6, 12, 36, 24), growth=48, first=96)
densenet169 = partial(densenet, blocks=(6, 12, 32, 32), growth=32, first=64)
densenet201 = partial(densenet, blocks=(6, 12, 48, 32), growth=32, first=64)
