"""Import what a reference names, when it is needed.

The settings of an algorithm, compressor, sampler, ... name the class that implements them by such a reference, and so
does the list of models: reading an experiment imports none of them.
"""

from importlib import import_module
from typing import Any


def load_implementation(reference: str) -> Any:
    """Return what `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
