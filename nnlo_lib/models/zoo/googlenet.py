"""GoogLeNet (Szegedy et al. 2015, arXiv 1409.4842) with batch normalization."""

from torch import nn

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

# table 1 of the paper, one row per module: inputs, 1 x 1, (1 x 1, 3 x 3), (1 x 1, 5 x 5), 1 x 1 after pooling
THREE = (
    (192, 64, (96, 128), (16, 32), 32), (256, 128, (128, 192), (32, 96), 64),
)  # fmt: skip
FOUR = (
    (480, 192, (96, 208), (16, 48), 64), (512, 160, (112, 224), (24, 64), 64), (512, 128, (128, 256), (24, 64), 64),
    (512, 112, (144, 288), (32, 64), 64), (528, 256, (160, 320), (32, 128), 128),
)  # fmt: skip
FIVE = ((832, 256, (160, 320), (32, 128), 128), (832, 384, (192, 384), (48, 128), 128))


def googlenet(
    shape: tuple[int, ...], classes: int, auxiliary: bool = False, dropout: float = 0.2, large_kernel: int = 3
) -> nn.Module:
    """Build nine inception modules (6,624,904 parameters for ImageNet, 13,004,888 with `auxiliary`).

    For small images (CIFAR), the stem is a single convolution.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        auxiliary: add two auxiliary classifiers; the result in training mode is then a tuple of three scores.
        dropout: probability of dropout before the last layer.
        large_kernel: side of the convolutions that are 5 x 5 in the paper; 3 in widely used pretrained
            weights.
    """
    shape = image_shape(shape, 8, "googlenet")
    pool = nn.MaxPool2d(3, 2, 1)
    three, four, five = ([_inception(*each, large_kernel) for each in stage] for stage in (THREE, FOUR, FIVE))
    parts = [
        nn.Sequential(*_stem(shape), *three, pool, four[0]),
        nn.Sequential(*four[1:4]),
    ]
    last = nn.Sequential(
        four[4], nn.MaxPool2d(2, 2, ceil_mode=True), *five, *classifier(1024, classes, dropout)
    )
    if auxiliary:
        return he_normal(Auxiliary(parts, [_head(512, classes), _head(528, classes)], last))
    return he_normal(nn.Sequential(*parts, last))


def _stem(shape: Shape) -> list[nn.Module]:
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


def _head(inputs: int, classes: int) -> nn.Module:
    # 1,024 units and 70 % dropout: section 5 of the paper.
    dense = nn.Sequential(nn.Linear(2048, 1024), nn.ReLU(), nn.Dropout(0.7), nn.Linear(1024, classes))
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), conv_bn(inputs, 128, 1), nn.Flatten(), dense)
