"""Reader without files: images drawn from a seed, for benchmarks and for trials without a data set."""

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np

from nnlo_lib.core.rng import derive_seed
from nnlo_lib.data.readers.base import Array, ConversionUnit, DatasetContents, SampleBlock, shard_ranges

Content = Literal["classes", "noise", "zeros"]
CACHED_PATTERNS = 128  # patterns of classes in memory, each of the size of a sample


def read(
    folder: Path,
    shard_size: int,
    *,
    shape: Sequence[int] = (1, 28, 28),
    classes: int = 10,
    samples: int = 10_000,
    test_samples: int = 2_000,
    seed: int = 0,
    content: Content = "classes",
) -> DatasetContents:
    """Return the contents of a synthetic data set of bytes; each sample depends on the seed and its number alone."""
    counts = {"train": samples, "test": test_samples}
    draw = partial(_block, tuple(shape), classes, seed, content)
    units = (
        ConversionUnit(split, name, folder, partial(draw, split, start, end))
        for split, count in counts.items()
        for name, start, end in shard_ranges(split, count, shard_size, prod(shape))
    )
    return DatasetContents(tuple(units), classes=classes, class_names=tuple(map(str, range(classes))))


def _block(
    shape: tuple[int, ...], classes: int, seed: int, content: Content, split: str, start: int, end: int
) -> SampleBlock:
    """Return samples start..end-1 of a split."""
    if content == "zeros":
        return SampleBlock((np.zeros((end - start, *shape), np.uint8),), np.zeros(end - start, np.int64))
    labels = np.arange(start, end) % classes
    images = np.stack([_drawn(seed, split, number, shape) for number in range(start, end)])
    if content == "classes":
        for image, label in zip(images, labels.tolist(), strict=True):
            image[...] = (image // 2) + (_pattern(seed, label, shape) // 2)
    return SampleBlock((images,), labels)


@lru_cache(CACHED_PATTERNS)
def _pattern(seed: int, label: int, shape: tuple[int, ...]) -> Array:
    return _drawn(seed, "class", label, shape)


def _drawn(seed: int, purpose: str, number: int, shape: tuple[int, ...]) -> Array:
    """Return the bytes of a sample, whose split is the purpose, or of the pattern of a class (purpose `class`)."""
    stream = np.random.Philox(derive_seed(seed, f"synthetic {purpose}", number))
    words = stream.random_raw(-(-prod(shape) // 8)).astype("<u8")
    return words.view(np.uint8)[: prod(shape)].reshape(shape).copy()
