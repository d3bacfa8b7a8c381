"""Residual networks for ImageNet (He et al. 2016, arXiv 1512.03385), also wide (arXiv 1605.07146)."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from torch import Tensor, nn
from torch.nn.functional import relu

from nnlo_lib.models.blocks import Shape, classifier, conv_bn, he_normal, image_shape, is_small


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the sum after ReLU, in the shape of the body's output."""
        return relu(self.body(inputs) + self.shortcut(inputs))


class ResidualBodyBuilder(Protocol):
    """Build the body of a residual block from its inputs, its filters and its stride."""

    expansion: int  # output channels of the body per filter

    def __call__(self, inputs: int, filters: int, stride: int) -> nn.Module:
        """Build the body.

        Args:
            inputs: number of input channels.
            filters: filters of the 3 x 3 convolutions.
            stride: stride of one of the convolutions, in both directions.
        """
        ...


class Basic:
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __call__(self, inputs: int, filters: int, stride: int) -> nn.Module:
        return nn.Sequential(conv_bn(inputs, filters, 3, stride), *conv_only(filters, filters, 3))


class Bottleneck:
    """Convolutions 1 x 1, 3 x 3, 1 x 1, the stride in the second; `wide` times as many filters in the middle."""

    expansion = 4

    def __init__(self, wide: int = 1) -> None:
        self.wide = wide

    def __call__(self, inputs: int, filters: int, stride: int) -> nn.Module:
        middle = filters * self.wide
        first, second = conv_bn(inputs, middle, 1), conv_bn(middle, middle, 3, stride)
        return nn.Sequential(first, second, *conv_only(middle, 4 * filters, 1))


def conv_only(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Sequence[nn.Module]:
    """Build a convolution and its batch normalization, without ReLU.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        kernel: side of the kernel, in pixels.
        stride: stride in both directions.
    """
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


def resnet(
    shape: tuple[int, ...],
    classes: int,
    block: ResidualBodyBuilder,
    depths: Sequence[int],
    dropout: float = 0.0,
) -> nn.Module:
    """Build four stages of `depths` blocks.

    For small images (CIFAR), the stem is a 3 x 3 convolution without pooling.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        block: builder of the residual blocks.
        depths: number of blocks in each stage.
        dropout: probability of dropout before the last layer.
    """
    layers, inputs = _stem(image_shape(shape, 8, "resnet")), 64
    for stage, depth in enumerate(depths):
        filters = 64 * 2**stage
        for position in range(depth):
            stride = 2 if stage and not position else 1
            outputs = filters * block.expansion
            same = stride == 1 and inputs == outputs
            shortcut = nn.Identity() if same else nn.Sequential(*conv_only(inputs, outputs, 1, stride))
            layers.append(Residual(block(inputs, filters, stride), shortcut))
            inputs = outputs
    return he_normal(nn.Sequential(*layers, *classifier(inputs, classes, dropout)))


def _stem(shape: Shape) -> list[nn.Module]:
    if is_small(shape):
        return [conv_bn(shape[0], 64, 3)]
    return [conv_bn(shape[0], 64, 7, 2), nn.MaxPool2d(3, 2, 1)]


resnet18 = partial(resnet, block=Basic(), depths=(2, 2, 2, 2))
resnet34 = partial(resnet, block=Basic(), depths=(3, 4, 6, 3))
resnet50 = partial(resnet, block=Bottleneck(), depths=(3, 4, 6, 3))
resnet101 = partial(resnet, block=Bottleneck(), depths=(3, 4, 23, 3))
resnet152 = partial(resnet, block=Bottleneck(), depths=(3, 8, 36, 3))
wide_resnet50_2 = partial(resnet, block=Bottleneck(wide=2), depths=(3, 4, 6, 3))
wide_resnet101_2 = partial(resnet, block=Bottleneck(wide=2), depths=(3, 4, 23, 3))
