"""The residual networks for CIFAR: 6 n + 2 layers (He et al. 2016, arXiv 1512.03385, section 4.2)."""

from functools import partial

from torch import Tensor, nn
from torch.nn.functional import pad

from nnlo_lib.models.blocks import classifier, conv_bn, he_normal, image_shape
from nnlo_lib.models.zoo.resnet import Basic, Residual


class Subsample(nn.Module):
    """The shortcut without parameters (option A): every second pixel, zeros for `more` new channels."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, channels + more, height / 2, width / 2), rounded up."""
        return pad(inputs[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.more))


def resnet_cifar(shape: tuple[int, ...], classes: int, depth: int = 20, filters: int = 16) -> nn.Module:
    """Build three stages of (depth - 2) / 6 blocks with filters, 2 filters and 4 filters.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        depth: number of layers, 6 n + 2.
        filters: filters of the first stage.
    """
    if depth % 6 != 2:
        raise ValueError(f"resnet_cifar: depth must be 6 n + 2 (20, 32, 44, 56, 110, 1202), not {depth}")
    channels = image_shape(shape, 8, "resnet_cifar")[0]
    layers: list[nn.Module] = [conv_bn(channels, filters, 3)]
    for stage in range(3):
        for position in range(depth // 6):
            layers.append(_block(filters * 2**stage, narrows=stage > 0 and position == 0))
    return he_normal(nn.Sequential(*layers, *classifier(4 * filters, classes)))


def _block(filters: int, narrows: bool) -> nn.Module:
    if not narrows:
        return Residual(Basic()(filters, filters, 1), nn.Identity())
    return Residual(Basic()(filters // 2, filters, 2), Subsample(filters // 2))


resnet20, resnet32, resnet44, resnet56, resnet110, resnet1202 = (
    partial(resnet_cifar, depth=depth) for depth in (20, 32, 44, 56, 110, 1202)
)
