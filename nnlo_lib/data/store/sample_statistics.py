"""Statistics of samples: mean and deviation of each channel, from independent parts, and non-finite values.

A value is finite if float32, the type in which models train, can hold it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array, ConversionUnit

# The largest float32. A larger float64 becomes infinite in a model, and its square overflows float64.
LARGEST_VALUE = float(np.finfo(np.float32).max)
CHUNK_VALUES = 1 << 20  # values that are in memory as float64 at once


@dataclass(frozen=True)
class ChannelMoments:
    """Moments of the finite values of some samples for each channel (first axis) of an input."""

    counts: tuple[int, ...]
    means: tuple[float, ...]
    # sum of the squared deviations from the mean. Sums of squares would lose all digits of a small deviation from a
    # large mean.
    squares: tuple[float, ...]

    @classmethod
    def of(cls, array: Array) -> "ChannelMoments":
        """Return the moments of samples (n, channels, ...) or (n,)."""
        channels = array.shape[1] if array.ndim > 1 else 1
        values = array.reshape(len(array), channels, -1)
        step = max(1, CHUNK_VALUES * len(array) // max(1, array.size))
        return pooled([_of_chunk(values[first : first + step]) for first in range(0, len(array), step)])

    @property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of each channel; 0 without a finite value."""
        return tuple(
            math.sqrt(squares / max(1, count))
            for squares, count in zip(self.squares, self.counts, strict=True)
        )


def pooled(parts: Sequence[ChannelMoments]) -> ChannelMoments:
    """Return the moments of all samples of the parts (Chan, Golub and LeVeque 1979, for any number of parts)."""
    channels = []
    for channel in zip(
        *(zip(part.counts, part.means, part.squares, strict=True) for part in parts), strict=True
    ):
        total, origin = sum(count for count, _, _ in channel), channel[0][1]
        # fsum rounds once, so that the order of the parts does not change the result. Means are compared with the
        # first, because the products with counts would round the digits of a large mean.
        mean = origin + math.fsum(count * (each - origin) for count, each, _ in channel) / max(1, total)
        squares = math.fsum(square + count * (each - mean) ** 2 for count, each, square in channel)
        channels.append((total, mean, squares))
    return ChannelMoments(*zip(*channels, strict=True))


def _of_chunk(values: Array) -> ChannelMoments:
    """Return the moments of samples (n, channels, values)."""
    values = values.astype(np.float64)
    finite = _is_finite(values)
    counts = finite.sum(axis=(0, 2))
    values[~finite] = 0.0
    # Differences from the first finite value are exact for a constant channel, whose deviation must be 0: rounding
    # in the mean would give 1e-17, by which other samples would be divided.
    of_channel, is_known = (each.swapaxes(0, 1).reshape(each.shape[1], -1) for each in (values, finite))
    origins = np.zeros(len(of_channel))
    if of_channel.size:
        origins = of_channel[np.arange(len(of_channel)), is_known.argmax(axis=1)]
    values -= origins[:, np.newaxis]
    values[~finite] = 0.0
    shifts = values.sum(axis=(0, 2)) / np.maximum(counts, 1)
    # In place: a chunk and its mask are all that is in memory.
    values -= shifts[:, np.newaxis]
    values[~finite] = 0.0
    squares = np.einsum("ncv,ncv->c", values, values)
    return ChannelMoments(tuple(counts.tolist()), tuple((origins + shifts).tolist()), tuple(squares.tolist()))


def count_non_finite(array: Array) -> int:
    """Return the number of values that are not finite as float32."""
    return int(array.size - _is_finite(array).sum()) if array.dtype.kind == "f" else 0


def non_finite_error(unit: ConversionUnit, arrays: Mapping[str, Array]) -> UserError:
    """Return an error with file and number of the first sample that has a non-finite value, and with their count.

    At least one of `arrays`, the arrays of the shard by name, has a non-finite value.
    """
    # Sample by sample, which needs little memory.
    wrong = {
        name: np.flatnonzero([not _is_finite(sample).all() for sample in array])
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }
    name, row = min(((name, rows[0]) for name, rows in wrong.items() if len(rows)), key=lambda each: each[1])
    value = arrays[name][row]
    count = len(np.unique(np.concatenate(list(wrong.values()))))
    return UserError(
        f"{unit.locate(int(row))} has the value {value[~_is_finite(value)].flat[0]} in {name}; {count:,} of "
        f"{len(arrays[name]):,} samples of this shard have values that are NaN, infinite or above {LARGEST_VALUE:.2g}, the "
        f"limit of float32; correct or remove the samples, or, with the reader arrays, set data.reader.non_finite: allow"
    )


def _is_finite(values: Array) -> Array:
    """Return True for each value that is finite as float32."""
    if values.dtype != np.float64:
        return np.isfinite(values)
    # NaN compares as False.
    finite: Array = np.abs(values) <= LARGEST_VALUE
    return finite
