"""Image of samples drawn from a generator."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.problems.adversarial.gan import fixed_noise

# Tiles per row and column; minimum size of a tile and width of the gap between tiles, both in pixels.
SIDE, TILE, GAP = 8, 56, 4


@torch.no_grad()
def draw_gan_samples(module: Any, path: Path) -> None:
    """Write a PNG with SIDE x SIDE samples of fixed noise; write no file if the samples are not images.

    Volumes are summed along their depth. The color range is 0 to 1, extended to the smallest and largest
    value.
    """
    like = next(module.parameters())
    samples = module.eval().generator(fixed_noise(SIDE * SIDE, module.latent).to(like)).float().cpu()
    images = samples.sum(2) if samples.dim() == 5 else samples
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        return
    low, high = images.min().clamp(max=0), images.max().clamp(min=1)
    _write(_tiled(((images - low) * 255 / (high - low)).round().byte()), path)


def _tiled(images: Tensor) -> Tensor:
    """Return a white grid (height', width', channels) with uint8 images (SIDE^2, channels, height, width)."""
    larger = -(-TILE // max(images.shape[2:]))
    tiles = images.repeat_interleave(larger, 2).repeat_interleave(larger, 3)
    tiles = torch.nn.functional.pad(tiles, (0, GAP, 0, GAP), value=255)
    _, channels, height, width = tiles.shape
    # Axes in the order (row, height, column, width, channels), so that the next reshape joins tiles to a
    # picture.
    grid = tiles.reshape(SIDE, SIDE, channels, height, width).permute(0, 3, 1, 4, 2)
    return grid.reshape(SIDE * height, SIDE * width, channels)[:-GAP, :-GAP]


def _write(picture: Tensor, path: Path) -> None:
    from PIL import Image

    with atomic_write(path) as part:
        Image.fromarray(picture.squeeze(2).numpy()).save(part, format="PNG", optimize=True)
