"""Inception v3 (Szegedy et al. 2016, arXiv 1512.00567)."""

from torch import nn

from nnlo_lib.models.blocks import Auxiliary, Branches, chain, classifier, conv_bn, he_normal, image_shape

TALL, WIDE = (7, 1), (1, 7)


def inception_v3(
    shape: tuple[int, ...], classes: int, auxiliary: bool = False, dropout: float = 0.5
) -> nn.Module:
    """Build Inception v3 for 299 pixels (23,834,568 parameters for ImageNet, 27,161,264 with `auxiliary`).

    With `auxiliary`, the result in training mode is a tuple of two scores.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        auxiliary: add an auxiliary classifier.
        dropout: probability of dropout before the last layer.
    """
    channels = image_shape(shape, 75, "inception_v3")[0]
    parts = [_stem(channels), _five(192, 32), _five(256, 64), _five(288, 64), _narrow_five(288)]
    parts += [_six(filters) for filters in (128, 160, 160, 192)]
    last = nn.Sequential(_narrow_six(), _seven(1280), _seven(2048), *classifier(2048, classes, dropout))
    first = nn.Sequential(*parts)
    network = Auxiliary([first], [_head(classes)], last) if auxiliary else nn.Sequential(first, last)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            # As in the authors' TensorFlow code and in torchvision; torch's default is 1e-5.
            layer.eps = 1e-3
    return he_normal(network)


def _stem(channels: int) -> nn.Module:
    first = [conv_bn(channels, 32, 3, 2, 0), conv_bn(32, 32, 3, 1, 0), conv_bn(32, 64, 3), nn.MaxPool2d(3, 2)]
    return nn.Sequential(*first, conv_bn(64, 80, 1), conv_bn(80, 192, 3, 1, 0), nn.MaxPool2d(3, 2))


def _pooled(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_bn(inputs, outputs, 1))


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


def _head(classes: int) -> nn.Module:
    convolutions = nn.Sequential(nn.AvgPool2d(5, 3), conv_bn(768, 128, 1), conv_bn(128, 768, 5, 1, 0))
    return nn.Sequential(convolutions, *classifier(768, classes))
