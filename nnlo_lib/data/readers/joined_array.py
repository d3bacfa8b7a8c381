"""Array of a whole shard, filled block by block, so that the samples are in memory once."""

from pathlib import Path

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_kind import stored_type


class JoinedArray:
    """One input of a shard.

    Args:
        name: name of the input, for error messages.
        samples: number of samples of the shard.
        dtype: `data.reader.dtype`.
        channels_last: whether the channels of images, the last axis, are moved to the front.

    Attributes:
        array: the samples; undefined until the first block is added.
        first_rows: samples of the first block, without rows, as they were added; None before.
    """

    array: Array

    def __init__(self, name: str, samples: int, dtype: str | None, channels_last: bool) -> None:
        self._name, self._samples, self._dtype, self._channels_last = name, samples, dtype, channels_last
        self.first_rows: Array | None = None
        self._filled = 0

    def add(self, rows: Array, path: Path, start: int) -> None:
        """Append rows. Raises UserError if the stored type cannot hold a value.

        Args:
            rows: samples (n, ...).
            path: file of the samples, for error messages.
            start: number of the first sample in the file.
        """
        last = self._channels_last and rows.ndim > 3
        moved = np.moveaxis(rows, -1, 1) if last else rows
        if self.first_rows is None:
            self.first_rows = rows[:0].copy()
            self.array = np.empty((self._samples, *moved.shape[1:]), stored_type(rows.dtype, self._dtype))
        into = self.array[self._filled :][: len(rows)]
        with np.errstate(all="ignore"):
            into[...] = moved
        self._filled += len(rows)
        for row in _misfits(moved, into)[:1]:
            value = moved[row][moved[row] != into[row]].flat[0]
            raise UserError(
                f"{path}: {self._name} of sample {start + row} has the value {value}, which {into.dtype} cannot hold; "
                f"set data.reader.dtype to another type"
            )


def _misfits(values: Array, stored: Array) -> Array:
    """Return the rows in which a stored value is another number; rounding of floats does not count."""
    if np.can_cast(values.dtype, stored.dtype):
        return np.empty(0, np.int64)
    wrong = np.isinf(stored) & np.isfinite(values) if stored.dtype.kind == "f" else stored != values
    return np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
