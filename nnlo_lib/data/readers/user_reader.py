"""Readers, data modules and adaptors of the user, whose errors are reported by file and line.

The data modules are NNLO's, which define get_train() and optionally get_val(), get_features(), get_labels().
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

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
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, Inputs, SampleBlock

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


def _called(code: str, function: Callable[[], Result], where: str = "data.reader") -> Result:
    """Return what the user's code returns. Raises UserError if it fails."""
    try:
        return function()
    except UserError:
        raise
    except USER_CODE_ERRORS as error:
        raise UserError(f"{where}: {code} failed: {error_with_source_line(error)}") from error


def is_nnlo_module(train: object) -> bool:
    """Return True if `train` is the path of a Python module."""
    return isinstance(train, str) and train.endswith(".py")


def reader_options_of_module(path: str) -> dict[str, Any]:
    """Return the reader options that the module `path` defines. Raises UserError if it fails, or has no get_train()."""
    return _called(path, partial(_module_options, path), "data.reader.train")


def _module_options(path: str) -> dict[str, Any]:
    module = load_user_module(path)
    if not hasattr(module, "get_train"):
        raise UserError(
            f"data.reader.train: {path} does not define get_train(); add the function, which returns the files"
        )
    names = {"train": "train", "val": "validation"} | {key: key for key in ADAPTOR_OPTIONS}
    options = {
        key: getattr(module, f"get_{name}")() for name, key in names.items() if hasattr(module, f"get_{name}")
    }
    for key, adaptor in ADAPTOR_OPTIONS.items():
        if isinstance(returned := options.get(key), tuple):
            if len(returned) != 2 or not callable(returned[1]):
                raise UserError(
                    f"data.reader.train: get_{key}() of {path} returned {returned!r}; it must return a key, or "
                    "(key, function)"
                )
            # The function itself cannot be sent to other processes, so its place in the module is given.
            options |= {key: returned[0], adaptor: f"{path}:get_{key}"}
    return options


def adapted(kind: Literal["features", "labels"], adaptor: str, arrays: Inputs, path: Path) -> Inputs:
    """Return the arrays that the user's function makes of as many arrays of a file, of one array or of a tuple.

    The function is `path.py:function`, or what `path.py:get_features` or `get_labels` returns. Raises UserError if it fails, or
    returns other than arrays of numbers with as many rows.
    """
    name = "the adaptor" if kind == "features" else "the label adaptor"
    samples = len(arrays[0])

    def changed() -> Inputs:
        # Loaded for each block: units are sent to other processes, and a function of a user's file cannot be pickled.
        function = load_user_function(adaptor)
        if adaptor.endswith(f":get_{kind}"):
            function = function()[1]
        result = function(arrays[0] if len(arrays) == 1 else arrays)
        several = kind == "features" and isinstance(result, tuple | list)
        return tuple(np.ascontiguousarray(each) for each in (result if several else (result,)))

    found = _called(f"{name} {adaptor}", changed, str(path))
    fit = [len(each) == samples and each.size >= samples and is_number(each.dtype) for each in found]
    if len(found) != len(arrays) or not all(fit):
        shown = ", ".join(f"{each.shape} {each.dtype}" for each in found[:5])
        raise UserError(
            f"{path}: {name} {adaptor} returned {shown} for {samples} samples; it must return {len(arrays)} array(s) of numbers with "
            f"{samples} rows"
        )
    return found
