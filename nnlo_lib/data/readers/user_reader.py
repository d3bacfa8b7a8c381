"""Readers, data modules and adaptors of the user, whose errors are reported by file and line.

The data modules are NNLO's, which define get_train() and optionally get_val(), get_features(), get_labels().
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.secrets import MASK
from nnlo_lib.core.user_code import (
    error_with_source_line,
    load_implementation,
    load_user_function,
    load_user_module,
)
from nnlo_lib.data.readers.array_formats import is_number
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock

# Each returns a key, or (key, function of the array), and the reader's option for the function.
ADAPTOR_OPTIONS = {"features": "adaptor", "labels": "label_adaptor"}
Result = TypeVar("Result")


def read_with_user_reader(
    reader: str, folder: Path, shard_size: int, options: Mapping[str, Any]
) -> DatasetContents:
    """Return the contents that a user's function, `path.py:function`, returns. Raises UserError if it fails."""
    for key, value in options.items():
        if MASK in str(value):  # of a finished run
            raise UserError(
                f"data.reader.args.{key}: has {MASK} in place of a secret, which is not stored; name the experiment file by --experiment, "
                f"or let {reader} read it from the environment"
            )
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


def is_nnlo_module(train: object) -> bool:
    """Return True if `train` is the path of a Python module."""
    return isinstance(train, str) and train.endswith(".py")


def reader_options_of_module(path: str) -> dict[str, Any]:
    """Return the reader options that the module `path` defines.

    Raises UserError if the module or one of its functions fails, or if it has no get_train().
    """
    functions = {"train": "get_train", "validation": "get_val"} | {
        key: f"get_{key}" for key in ADAPTOR_OPTIONS
    }
    try:
        module = load_user_module(path)
        if not hasattr(module, "get_train"):
            raise UserError(
                f"data.reader.train: {path} does not define get_train(); add the function, which returns the files"
            )
        options = {key: getattr(module, name)() for key, name in functions.items() if hasattr(module, name)}
    except UserError:
        raise
    except USER_CODE_ERRORS as error:
        raise UserError(f"data.reader.train: {path} failed: {error_with_source_line(error)}") from error
    for key, adaptor in ADAPTOR_OPTIONS.items():
        if isinstance(options.get(key), tuple):
            # The function itself cannot be sent to other processes, so its place in the module is given.
            returned = options[key]
            if len(returned) != 2 or not callable(returned[1]):
                raise UserError(
                    f"data.reader.train: get_{key}() of {path} returned {returned!r}; it must return a key, or "
                    "(key, function)"
                )
            options |= {key: returned[0], adaptor: f"{path}:get_{key}"}
    return options


def load_feature_adaptor(reference: str) -> Callable[..., Any]:
    """Return the function `path.py:function`, or the function that `path.py:get_features` returns."""
    return _load_adaptor(reference, "features")


def load_label_adaptor(reference: str) -> Callable[..., Any]:
    """Return the function `path.py:function`, or the function that `path.py:get_labels` returns."""
    return _load_adaptor(reference, "labels")


def _load_adaptor(reference: str, key: str) -> Callable[..., Any]:
    function = load_user_function(reference)
    adaptor: Callable[..., Any] = function()[1] if reference.endswith(f":get_{key}") else function
    return adaptor
