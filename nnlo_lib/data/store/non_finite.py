"""Error about NaN and infinity in the samples of a shard."""

from collections.abc import Mapping

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array, ConversionUnit


def non_finite_error(unit: ConversionUnit, arrays: Mapping[str, Array]) -> UserError:
    """Return an error with file and number of the first sample that has a non-finite value, and with their count.

    Args:
        unit: unit of the samples.
        arrays: arrays of the shard by name; at least one has a non-finite value.
    """
    wrong = {name: _samples_with_non_finite_values(array) for name, array in arrays.items()}
    name, row = min(((name, rows[0]) for name, rows in wrong.items() if len(rows)), key=lambda each: each[1])
    value = arrays[name][row]
    count = len(np.unique(np.concatenate(list(wrong.values()))))
    return UserError(
        f"{unit.locate(int(row))} has the value {value[~np.isfinite(value)].flat[0]} in {name}; {count:,} of "
        f"{len(arrays[name]):,} samples of this shard have NaN or infinite values; correct or remove the samples, or, with "
        f"the reader arrays, set data.reader.non_finite: allow"
    )


def _samples_with_non_finite_values(array: Array) -> Array:
    """Return the numbers of the samples; sample by sample, which needs little memory."""
    rows = [] if array.dtype.kind in "iub" else [not np.isfinite(sample).all() for sample in array]
    return np.flatnonzero(rows)
