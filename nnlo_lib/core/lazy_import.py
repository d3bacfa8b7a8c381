"""Import classes and functions by a reference when they are needed.

The settings of algorithms, compressors, samplers, ... and the list of models refer to their implementations
in this way, so reading an experiment imports no implementation of NNLO. A reference is `module:name`, or
`path.py:name` for an object in a file of the user.
"""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from nnlo_lib.core.user_code import load_user_module, modification_times


def load_implementation(reference: str) -> Any:
    """Return the object that `module:name` or `path.py:name` refers to. Errors of a user's file are not caught."""
    module, _, name = reference.rpartition(":")
    # The modification times are part of the cache key, so that edited files are loaded again.
    found = _user_module(module, modification_times(module)) if module.endswith(".py") else None
    return getattr(found or import_module(module), name)


@cache
def _user_module(path: str, changed: tuple[int, ...]) -> ModuleType:
    """Run the file once as long as it and its imports are unchanged, so that all of its users get the same classes."""
    return load_user_module(path)
