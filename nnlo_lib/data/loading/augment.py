"""Random augmentation of training images in mini-batches (count, channels, height, width)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnlo_lib.data.loading.sampler import ShufflePurpose
from nnlo_lib.data.readers.base import Array, Indices, Inputs

Draws = npt.NDArray[np.uint64]  # (count, WORDS): the random words of each sample
WORDS = 8  # words per sample: a multiple of BLOCK, so that every sample begins at a step of the counter
BLOCK = 4  # words per step of the Philox counter
FLIP, WINDOW, TOP, LEFT, FROM_TOP, FROM_LEFT, TO_TOP, TO_LEFT = range(WORDS)


@dataclass(frozen=True)
class Augment:
    """Augmentation of images: crop, then move a window, then flip.

    Invariant: the changes of a sample depend only on (seed, epoch, position), not on the calling rank or the
    order of the calls.
    """

    flip: float = 0.0
    pad: int = 0
    # side of the random square cut out of the padded image, in pixels; None keeps the stored size
    crop: int | None = None
    # side of a random square that is kept and moved to a random place while the rest of the image becomes zero, in
    # pixels (PyDTNN's --crop_images); None turns this off
    window: int | None = None
    window_probability: float = 0.5
    seed: int = 0

    def __call__(self, inputs: Inputs, epoch: int, position: int) -> Inputs:
        """Return the augmented mini-batch, whose first sample has a `position` in the epoch; may modify `inputs`."""
        draws = self._draws(epoch, position, len(inputs[0]))
        return tuple(self._changed(array, draws) if array.ndim == 4 else array for array in inputs)

    def _draws(self, epoch: int, position: int, count: int) -> Draws:
        """Return the random words of `count` samples; numpy guarantees that the stream never changes."""
        stream = np.random.Philox(np.random.SeedSequence([self.seed, ShufflePurpose.AUGMENT, epoch]))
        # Philox computes its words from a counter, so that skipping costs nothing and the words of a sample
        # depend on its position alone.
        stream.advance(position * (WORDS // BLOCK))
        return stream.random_raw(count * WORDS).reshape(count, WORDS)

    def _changed(self, images: Array, draws: Draws) -> Array:
        if self.pad or self.crop:
            images = self._cropped(images, draws)
        if self.window:
            self._move_windows(images, draws, self.window)
        flipped = np.flatnonzero(_chosen(draws[:, FLIP], self.flip))
        # In place: Split.take returns new arrays.
        images[flipped] = images[flipped, :, :, ::-1]
        return images

    def places(self, draws: Draws, height: int, width: int) -> tuple[Indices, Indices]:
        """Return the stored row and column of each changed row and column of images; -1 for zeros.

        (count, rows) and (count, columns): crop, window and flip change rows and columns apart from each other.
        """
        rows = self._axis_places(draws, height, TOP, FROM_TOP, TO_TOP)
        columns = self._axis_places(draws, width, LEFT, FROM_LEFT, TO_LEFT)
        flipped = _chosen(draws[:, FLIP], self.flip)
        columns[flipped] = columns[flipped, ::-1]
        return rows, columns

    def _axis_places(self, draws: Draws, stored: int, start: int, source: int, target: int) -> Indices:
        side = self.crop or stored
        places = np.tile(np.arange(side), (len(draws), 1))
        if self.window:
            room = max(0, side - self.window) + 1
            inside = places - _below(draws[:, target], room)[:, None]
            outside = (inside < 0) | (inside >= self.window)
            moved = np.where(
                outside, -stored - 2 * self.pad, inside + _below(draws[:, source], room)[:, None]
            )
            places = np.where(_chosen(draws[:, WINDOW], self.window_probability)[:, None], moved, places)
        places += _below(draws[:, start], stored + 2 * self.pad - side + 1)[:, None] - self.pad
        return np.where((places < 0) | (places >= stored), -1, places)

    def _cropped(self, images: Array, draws: Draws) -> Array:
        count, channels, *sides = images.shape
        height, width = (self.crop or side for side in sides)
        margin = ((0, 0), (0, 0), (self.pad, self.pad), (self.pad, self.pad))
        padded = np.pad(images, margin) if self.pad else images
        tops = _below(draws[:, TOP], padded.shape[2] - height + 1)
        lefts = _below(draws[:, LEFT], padded.shape[3] - width + 1)
        cropped = np.empty((count, channels, height, width), images.dtype)
        for into, image, top, left in zip(cropped, padded, tops.tolist(), lefts.tolist(), strict=True):
            into[...] = image[:, top : top + height, left : left + width]
        return cropped

    def _move_windows(self, images: Array, draws: Draws, side: int) -> None:
        height, width = (min(side, extent) for extent in images.shape[2:])
        down, across = (images.shape[2] - height + 1, images.shape[3] - width + 1)
        places = np.stack(
            [_below(draws[:, word], room) for word, room in ((FROM_TOP, down), (FROM_LEFT, across), (TO_TOP, down), (TO_LEFT, across))]
        )  # fmt: skip
        for number in np.flatnonzero(_chosen(draws[:, WINDOW], self.window_probability)):
            top, left, to_top, to_left = places[:, number].tolist()
            kept = images[number, :, top : top + height, left : left + width].copy()
            images[number] = 0
            images[number, :, to_top : to_top + height, to_left : to_left + width] = kept


def center_crop(inputs: Inputs, crop: int) -> Inputs:
    """Return the inputs with images larger than `crop` cut to their central square of side `crop`."""
    starts = ([max(0, side - crop) // 2 for side in array.shape[2:]] for array in inputs)
    return tuple(
        array[:, :, start[0] : start[0] + crop, start[1] : start[1] + crop] if array.ndim == 4 else array
        for array, start in zip(inputs, starts, strict=True)
    )


def _chosen(words: npt.NDArray[np.uint64], probability: float) -> npt.NDArray[np.bool_]:
    # 53 random bits as a double in [0, 1), as numpy's random() makes them.
    return (words >> np.uint64(11)) * 2.0**-53 < probability


def _below(words: npt.NDArray[np.uint64], limit: int) -> Indices:
    """Map random 64-bit words to integers 0..limit-1."""
    # Lemire 2019 (arXiv 1805.10941) without the rejection: no division, and a bias below limit / 2^32.
    return ((words >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)
