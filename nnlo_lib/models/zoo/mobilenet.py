"""MobileNet, first version (Howard et al. 2017, arXiv 1704.04861)."""

from torch import nn

from nnlo_lib.models.blocks import classifier, conv_bn, he_normal, image_shape, is_small

FILTERS = (64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
NARROWING = (1, 3, 5, 11)  # positions of the separable convolutions with stride 2


def mobilenet_v1(shape: tuple[int, ...], classes: int, width: float = 1.0, dropout: float = 0.0) -> nn.Module:
    """Build 13 separable convolutions of `width` times the filters (4,231,976 parameters for ImageNet).

    For small images (CIFAR), the first convolution keeps height and width.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        width: factor of the number of filters.
        dropout: probability of dropout before the last layer.
    """
    shape = image_shape(shape, 16, "mobilenet_v1")
    inputs = int(32 * width)
    layers = [conv_bn(shape[0], inputs, 3, 1 if is_small(shape) else 2)]
    for position, filters in enumerate(FILTERS):
        outputs = int(filters * width)
        layers.append(_separable(inputs, outputs, 2 if position in NARROWING else 1))
        inputs = outputs
    return he_normal(nn.Sequential(*layers, *classifier(inputs, classes, dropout)))


def _separable(inputs: int, outputs: int, stride: int) -> nn.Module:
    each = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
    return nn.Sequential(each, nn.BatchNorm2d(inputs), nn.ReLU(), conv_bn(inputs, outputs, 1))
