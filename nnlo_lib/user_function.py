"""Functions that users name in the experiment: `path/to/file.py:function`."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any


def user_function(name: str) -> Callable[..., Any]:
    """Run the file and return its function; raises whatever the file raises, AttributeError if it has no such one."""
    path, _, function = name.rpartition(":")
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    found: Callable[..., Any] = getattr(module, function)
    return found
