"""Import classes and functions by a reference `module:name` when they are needed.

The settings of algorithms, compressors, samplers, ... and the list of models refer to their implementations
in this way, so reading an experiment imports no implementation.
"""

from importlib import import_module
from typing import Any


def load_implementation(reference: str) -> Any:
    """Return the object that `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
