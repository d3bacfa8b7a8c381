"""NNLO's data modules, which define get_train() and optionally get_val(), get_features(), get_labels()."""

from collections.abc import Callable
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_module

FEATURES = "get_features"  # returns a key, or (key, function of the array)


def is_nnlo_module(train: object) -> bool:
    """Return True if `train` is the path of a Python module."""
    return isinstance(train, str) and train.endswith(".py")


def reader_options_of_module(path: str) -> dict[str, Any]:
    """Return the reader options that the module `path` defines.

    Raises UserError if the module or one of its functions fails, or if it has no get_train().
    """
    functions = {"train": "get_train", "validation": "get_val", "features": FEATURES, "labels": "get_labels"}
    try:
        module = load_user_module(path)
        if not hasattr(module, "get_train"):
            raise UserError(
                f"data.reader.train: {path} does not define get_train(); add the function, which returns the files"
            )
        options = {key: getattr(module, name)() for key, name in functions.items() if hasattr(module, name)}
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"data.reader.train: {path} failed: {error_with_source_line(error)}") from error
    # The function itself cannot be stored as an option or sent to other processes, so its place in the module
    # is given.
    if isinstance(options.get("features"), tuple):
        options |= {"features": options["features"][0], "adaptor": f"{path}:{FEATURES}"}
    return options


def resolve_adaptor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the adaptor: the function itself, or the function that a module's get_features() returns."""
    adaptor: Callable[..., Any] = function()[1] if function.__name__ == FEATURES else function
    return adaptor
