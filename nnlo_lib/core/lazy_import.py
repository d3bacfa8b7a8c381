"""Import classes and functions by a reference `module:name` when they are needed.

The settings of an algorithm, compressor, sampler, ... give their implementation by a reference, and so does
the list of models; reading an experiment therefore imports no implementation.
"""

from importlib import import_module
from typing import Any


def load_implementation(reference: str) -> Any:
    """Return the object that `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
