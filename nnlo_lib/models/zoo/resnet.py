"""Residual networks for ImageNet and CIFAR, also wide ones."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from nnlo_lib.models.blocks import classifier, conv_bn, he_normal, image_shape, is_small


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the sum after ReLU, in the shape of the body's output."""
        return relu(self.body(inputs) + self.shortcut(inputs))


class Basic:
    """Builder of the body of a residual block: two 3 x 3 convolutions."""

    expansion = 1  # output channels of the body per filter

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
    """Build a convolution and its batch normalization, without ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)


def resnet(
    shape: tuple[int, ...],
    classes: int,
    block: Basic | Bottleneck,
    depths: Sequence[int],
    dropout: float = 0.0,
) -> nn.Module:
    """Build four stages of `depths` blocks (He et al. 2016, arXiv 1512.03385; wide: arXiv 1605.07146).

    For small images (CIFAR), the stem is a 3 x 3 convolution without pooling.
    """
    images, inputs = image_shape(shape, 8, "resnet"), 64
    small = is_small(images)
    layers: list[nn.Module] = (
        [conv_bn(images[0], 64, 3)] if small else [conv_bn(images[0], 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    )
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


resnet18 = partial(resnet, block=Basic(), depths=(2, 2, 2, 2))
resnet34 = partial(resnet, block=Basic(), depths=(3, 4, 6, 3))
resnet50 = partial(resnet, block=Bottleneck(), depths=(3, 4, 6, 3))
resnet101 = partial(resnet, block=Bottleneck(), depths=(3, 4, 23, 3))
resnet152 = partial(resnet, block=Bottleneck(), depths=(3, 8, 36, 3))
wide_resnet50_2 = partial(resnet, block=Bottleneck(wide=2), depths=(3, 4, 6, 3))
wide_resnet101_2 = partial(resnet, block=Bottleneck(wide=2), depths=(3, 4, 23, 3))


class Subsample(nn.Module):
    """The shortcut without parameters (option A): every second pixel, zeros for `more` new channels."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, channels + more, height / 2, width / 2), rounded up."""
        return pad(inputs[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.more))


def resnet_cifar(shape: tuple[int, ...], classes: int, depth: int = 20, filters: int = 16) -> nn.Module:
    """Build three stages of (depth - 2) / 6 blocks with filters, 2 filters and 4 filters (section 4.2 of He et al.)."""
    if depth % 6 != 2:
        raise ValueError(f"resnet_cifar: depth must be 6 n + 2 (20, 32, 44, 56, 110, 1202), not {depth}")
    channels = image_shape(shape, 8, "resnet_cifar")[0]
    layers: list[nn.Module] = [conv_bn(channels, filters, 3)]
    for stage in range(3):
        for position in range(depth // 6):
            width = filters * 2**stage
            if stage and not position:
                layers.append(Residual(Basic()(width // 2, width, 2), Subsample(width // 2)))
            else:
                layers.append(Residual(Basic()(width, width, 1), nn.Identity()))
    return he_normal(nn.Sequential(*layers, *classifier(4 * filters, classes)))


resnet20, resnet32, resnet44, resnet56, resnet110, resnet1202 = (
    partial(resnet_cifar, depth=depth) for depth in (20, 32, 44, 56, 110, 1202)
)


class Wide(nn.Module):
    """Batch normalization, ReLU and a 3 x 3 convolution, twice, plus a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Dropout(dropout), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )  # fmt: skip
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, outputs, height / stride, width / stride)."""
        active = self.before(inputs)
        # As in the authors' code, a convolution as shortcut takes the activated inputs, the identity the raw
        # ones.
        beside = inputs if self.shortcut is None else self.shortcut(active)
        total: Tensor = self.body(active) + beside
        return total


def wide_resnet(
    shape: tuple[int, ...], classes: int, depth: int = 28, widen: int = 10, dropout: float = 0.0
) -> nn.Module:
    """Build WRN-depth-widen (28-10: 36,479,194 parameters for CIFAR-10); Theano-MPI's is 28-4 with dropout 0.3.

    Zagoruyko and Komodakis 2016, arXiv 1605.07146.
    """
    if depth % 6 != 4:
        raise ValueError(f"wide_resnet: depth must be 6 n + 4 (16, 22, 28, 40), not {depth}")
    channels = image_shape(shape, 8, "wide_resnet")[0]
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False)]
    inputs = 16
    for stage in range(3):
        outputs = 16 * widen * 2**stage
        for position in range(depth // 6):
            layers.append(Wide(inputs, outputs, 2 if stage and not position else 1, dropout))
            inputs = outputs
    return he_normal(nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), *classifier(inputs, classes)))
