"""Functions that users name in the experiment: `path/to/file.py:function`, or their module by `path/to/file.py`."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

GET_MODEL = "get_model"  # what NNLO calls in a module
MAX_ERROR_CHARS = 1000  # characters of an error; Keras tells its whole configuration


def load_user_function(name: str) -> Callable[..., Any]:
    """Run the file and return its function; raises whatever the file raises, AttributeError if it has no such one.

    A file without a function is one of NNLO's modules: its function is get_model.
    """
    path, function = split_function_reference(name)
    found: Callable[..., Any] = getattr(load_user_module(path), function)
    return found


def split_function_reference(name: str) -> tuple[str, str]:
    """Take `path.py:function` or `path.py` apart."""
    path, colon, function = name.rpartition(":")
    return (path, function) if colon and path.endswith(".py") else (name, GET_MODEL)


def load_user_module(path: str) -> ModuleType:
    """Run the file and return it as a module; raises whatever the file raises."""
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def error_with_source_line(error: BaseException) -> str:
    """Name an error with the user's own line that raised it, if it was not the caller's."""
    trace = caller = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (
        f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace and trace is not caller else ""
    )
    return f"{type(error).__name__}: {str(error)[:MAX_ERROR_CHARS]}{where}"
