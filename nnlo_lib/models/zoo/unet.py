"""U-Net (Ronneberger, Fischer and Brox 2015) with padded convolutions and batch normalization."""

import torch
from torch import Tensor, nn


class DoubleConvolution(nn.Sequential):
    """Two 3 x 3 convolutions, each with batch normalization and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip


class UNet(nn.Module):
    """Scores of the classes of each pixel.

    Args:
        channels: channels of an image.
        classes: number of classes.
        filters: channels of the first level; doubled on each level below.
        levels: levels below the first; each halves the sides.
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


def unet(shape: tuple[int, ...], classes: int, filters: int = 64, levels: int = 4) -> nn.Module:
    """Build the network for images of `shape` (channels, height, width).

    Args:
        shape: shape of an image.
        classes: number of classes of a pixel.
        filters: channels of the first level.
        levels: levels below the first.
    """
    if len(shape) != 3 or any(side % 2**levels for side in shape[1:]):
        raise ValueError(
            f"unet with {levels} levels requires images (channels, height, width) with sides that are multiples of "
            f"{2**levels}, but the samples are {shape}"
        )
    return UNet(shape[0], classes, filters, levels)
