"""Random augmentation of training images in mini-batches (count, channels, height, width), and mixtures of two samples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnlo_lib.data.loading.sampler import ShufflePurpose
from nnlo_lib.data.readers.base import Array, Indices, Inputs

Draws = npt.NDArray[np.uint64]  # (count, WORDS): the random words of each sample
WORDS = 8  # words per sample: a multiple of BLOCK, so that every sample begins at a step of the counter
BLOCK = 4  # words per step of the Philox counter
FLIP, WINDOW, TOP, LEFT, FROM_TOP, FROM_LEFT, TO_TOP, TO_LEFT = range(WORDS)
KIND, SHARE, ROW, COLUMN = range(BLOCK)  # words of a mixture


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
        draws = _words((self.seed, ShufflePurpose.AUGMENT, epoch), position, len(inputs[0]), WORDS)
        return tuple(self._changed(array, draws) if array.ndim == 4 else array for array in inputs)

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


@dataclass(frozen=True)
class Mixture:
    """Mixture of each sample i with the next one, j, of the order of its epoch, which is random.

    Inputs are k x_i + (1 - k) x_j, losses s l(y_i) + (1 - s) l(y_j), where s is the mean of k; f has the distribution
    Beta(alpha, alpha). Mixup (Zhang et al. 2018, eqs. 1 and 2): k = f. Cutmix (Yun et al. 2019, section 3.1): k is 0 in a
    rectangle of sqrt(1 - f) of the image's sides around a random pixel, cut off at the borders, and else 1.

    Invariant: as of Augment, so that the mixtures are the same for any number of ranks that share an order.
    """

    mixup: float  # alpha, or 0
    cutmix: float  # alpha, or 0; with both, each sample has one or the other with equal probability
    seed: int = 0

    def __call__(self, inputs: Inputs, labels: Array, epoch: int, position: int) -> tuple[Inputs, Array]:
        """Return n inputs, and targets (n, 3) of label, other label and s, of n + 1 consecutive samples."""
        draws = _words((self.seed, ShufflePurpose.MIXTURE, epoch), position, len(labels) - 1, BLOCK)
        kept = [self._kept(draws, array.shape) for array in inputs]
        share, columns = (
            self._placed(each, labels) for each in (kept[0].reshape(len(draws), -1).mean(1), np.eye(3))
        )
        # Sums and products, which arrays on the host and tensors have alike.
        targets = labels[:-1, None] * columns[0] + labels[1:, None] * columns[1] + share[:, None] * columns[2]
        return tuple(map(self._mixed, inputs, kept)), targets

    def _kept(self, draws: Draws, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return k, (n, 1, height, width) for cutmix, else (n, 1, ...)."""
        from scipy.special import betaincinv  # imported here because it takes 0.1 s and only mixtures need it

        cuts = _chosen(draws[:, KIND], 0.5 if self.mixup and self.cutmix else bool(self.cutmix))
        alpha = np.where(cuts, self.cutmix, self.mixup)
        fraction = betaincinv(alpha, alpha, (draws[:, SHARE] >> np.uint64(11)) * 2.0**-53)
        kept: npt.NDArray[np.float64] = fraction.reshape(-1, *[1] * (len(shape) - 1))
        if not self.cutmix:
            return kept
        inside = np.ones((len(draws), 1, 1, 1), bool)
        for axis, word in ((2, ROW), (3, COLUMN)):
            half = (shape[axis] * np.sqrt(1 - fraction)).astype(np.int64) // 2
            away = np.arange(shape[axis]) - _below(draws[:, word], shape[axis])[:, None]
            here = (away >= -half[:, None]) & (away < half[:, None])
            inside = inside & np.expand_dims(here, (1, 5 - axis))
        return np.where(cuts[:, None, None, None], ~inside, kept)

    def _mixed(self, array: Any, kept: npt.NDArray[np.float64]) -> Any:
        numbers = self._numbers(array)
        weights = self._placed(kept.astype(f"f{numbers.itemsize}"), array)
        return numbers[:-1] * weights + numbers[1:] * (1 - weights)

    def _numbers(self, array: Any) -> Any:
        return array if array.dtype == np.float64 else array.astype(np.float32)

    def _placed(self, values: Array, beside: Any) -> Any:
        """Return an array where the samples are, on the host or a device."""
        return values


def center_crop(inputs: Inputs, crop: int) -> Inputs:
    """Return the inputs with images larger than `crop` cut to their central square of side `crop`."""
    starts = ([max(0, side - crop) // 2 for side in array.shape[2:]] for array in inputs)
    return tuple(
        array[:, :, start[0] : start[0] + crop, start[1] : start[1] + crop] if array.ndim == 4 else array
        for array, start in zip(inputs, starts, strict=True)
    )


def _words(key: tuple[int, ...], position: int, count: int, width: int) -> Draws:
    """Return the random words (count, width) of samples from `position` on; numpy guarantees that the stream never changes."""
    stream = np.random.Philox(np.random.SeedSequence(key))
    # Philox computes its words from a counter, so that skipping costs nothing and the words of a sample depend on its
    # position alone.
    stream.advance(position * (width // BLOCK))
    return stream.random_raw(count * width).reshape(count, width)


def _chosen(words: npt.NDArray[np.uint64], probability: float) -> npt.NDArray[np.bool_]:
    # 53 random bits as a double in [0, 1), as numpy's random() makes them.
    return (words >> np.uint64(11)) * 2.0**-53 < probability


def _below(words: npt.NDArray[np.uint64], limit: int) -> Indices:
    """Map random 64-bit words to integers 0..limit-1."""
    # Lemire 2019 (arXiv 1805.10941) without the rejection: no division, and a bias below limit / 2^32.
    return ((words >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)
