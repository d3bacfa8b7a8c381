"""Values of samples that float32, the type in which models train, cannot hold: NaN, infinity, and larger numbers."""

from collections.abc import Mapping

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array, ConversionUnit

# The largest float32. A larger float64 becomes infinite in a model, and its square overflows float64.
LARGEST_VALUE = float(np.finfo(np.float32).max)


def is_finite(values: Array) -> Array:
    """Return True for each value that is finite as float32."""
    if values.dtype != np.float64:
        return np.isfinite(values)
    # NaN compares as False.
    finite: Array = np.abs(values) <= LARGEST_VALUE
    return finite


def count_non_finite(array: Array) -> int:
    """Return the number of values that are not finite as float32."""
    return int(array.size - is_finite(array).sum()) if array.dtype.kind == "f" else 0


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
        f"{unit.locate(int(row))} has the value {value[~is_finite(value)].flat[0]} in {name}; {count:,} of "
        f"{len(arrays[name]):,} samples of this shard have values that are NaN, infinite or above {LARGEST_VALUE:.2g}, the "
        f"limit of float32; correct or remove the samples, or, with the reader arrays, set data.reader.non_finite: allow"
    )


def _samples_with_non_finite_values(array: Array) -> Array:
    """Return the numbers of the samples; sample by sample, which needs little memory."""
    rows = [] if array.dtype.kind in "iub" else [not is_finite(sample).all() for sample in array]
    return np.flatnonzero(rows)
