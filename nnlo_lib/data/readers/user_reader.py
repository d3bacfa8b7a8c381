"""Call of a user's reader, whose errors are reported by file and line."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.readers.array_kind import is_number

Result = TypeVar("Result")


def read_with_user_reader(
    reader: str, folder: Path, shard_size: int, options: Mapping[str, Any]
) -> DatasetContents:
    """Return the contents that a user's function returns. Raises UserError if the function fails.

    Args:
        reader: `path.py:function`.
        folder: folder of the original files.
        shard_size: maximum number of samples per shard.
        options: keyword arguments of the function.
    """
    contents = _called(reader, lambda: load_implementation(reader)(folder, shard_size, **options))
    if not isinstance(contents, DatasetContents):
        raise UserError(
            f"data.reader: {reader} returned {type(contents).__name__}; it must return nnlo_lib.DatasetContents"
        )
    units = (replace(unit, read=partial(_block, reader, unit)) for unit in contents.units)
    return replace(contents, units=tuple(units))


def _block(reader: str, unit: ConversionUnit) -> SampleBlock:
    block = _called(reader, unit.read)
    if not isinstance(block, SampleBlock):
        raise UserError(
            f"data.reader: the unit {unit.name} of {reader} read {type(block).__name__}; it must read a SampleBlock"
        )
    arrays = (*block.inputs, block.labels)
    usable = [isinstance(array, np.ndarray) and array.ndim > 0 and is_number(array.dtype) for array in arrays]
    if not all(usable) or len({len(array) for array in arrays}) > 1:
        found = ", ".join(f"{np.shape(array)} {np.asarray(array).dtype}" for array in arrays)
        raise UserError(
            f"data.reader: the unit {unit.name} of {reader} read the arrays {found}; inputs and labels must be NumPy arrays "
            f"of numbers with one row per sample"
        )
    return block


def _called(reader: str, function: Callable[[], Result]) -> Result:
    try:
        return function()
    except UserError:
        raise
    except USER_CODE_ERRORS as error:
        raise UserError(f"data.reader: {reader} failed: {error_with_source_line(error)}") from error
