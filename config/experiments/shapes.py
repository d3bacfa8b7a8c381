"""Reader of synthetic segmentation: noisy images of a disk and a rectangle, with the class of each pixel."""

import numpy as np

from nnlo_lib import contents_of_arrays

BACKGROUND, DISK, RECTANGLE = range(3)


def read_shapes(folder, shard_size, train=400, test=100, side=32, noise=0.3, seed=0):
    """Return grey images (1, side, side) and classes (side, side).

    Args:
        folder: data.source; nothing is read from it.
        shard_size: maximum number of images per shard.
        train: number of training images.
        test: number of test images.
        side: pixels of a side.
        noise: standard deviation of the noise.
        seed: seed of the images.
    """
    draw = np.random.default_rng(seed)
    drawn = {
        "train": [_image(draw, side, noise) for _ in range(train)],
        "test": [_image(draw, side, noise) for _ in range(test)],
    }
    splits = {name: tuple(map(np.stack, zip(*pairs, strict=True))) for name, pairs in drawn.items()}
    return contents_of_arrays(splits, folder, shard_size)


def _image(draw, side, noise):
    rows, columns = np.mgrid[:side, :side]
    classes = np.full((side, side), BACKGROUND)
    top, left = draw.integers(0, side // 2, 2)
    high, wide = draw.integers(side // 8, side // 2, 2)
    classes[top : top + high, left : left + wide] = RECTANGLE
    center, radius = draw.integers(side // 4, side, 2), draw.integers(side // 8, side // 4)
    classes[(rows - center[0]) ** 2 + (columns - center[1]) ** 2 <= radius**2] = DISK
    # Both shapes have the same brightness, so that only their form tells them apart.
    image = (classes != BACKGROUND) + noise * draw.normal(size=classes.shape)
    return image[None].astype(np.float32), classes.astype(np.int64)
