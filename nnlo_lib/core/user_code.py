"""Import of user functions, which an experiment gives as `path/to/file.py:function` or `path/to/file.py`."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

GET_MODEL = "get_model"  # the function that NNLO calls in a module
MAX_ERROR_CHARS = 1000  # errors of Keras contain the whole model configuration


def load_user_function(name: str) -> Callable[..., Any]:
    """Run the file and return its function; for `path.py` without a function, return `get_model`.

    Raises AttributeError if the file does not define the function. Errors of the file itself are not caught.
    """
    path, function = split_function_reference(name)
    found: Callable[..., Any] = getattr(load_user_module(path), function)
    return found


def split_function_reference(name: str) -> tuple[str, str]:
    """Return the path and the function of `path.py:function`; the function of `path.py` alone is `get_model`."""
    path, colon, function = name.rpartition(":")
    return (path, function) if colon and path.endswith(".py") else (name, GET_MODEL)


def load_user_module(path: str) -> ModuleType:
    """Run the file and return it as a module; errors of the file are not caught.

    The file can import modules from its folder and from the working directory.
    """
    # Last, so that a file of the user such as types.py does not replace a module of Python or of NNLO.
    for folder in (str(Path(path).absolute().parent), os.getcwd()):
        if folder not in sys.path:
            sys.path.append(folder)
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def error_with_source_line(error: BaseException) -> str:
    """Return an error's type and text, and the source line that raised it unless the caller itself did."""
    trace = caller = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = (
        f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace and trace is not caller else ""
    )
    return f"{type(error).__name__}: {str(error)[:MAX_ERROR_CHARS]}{where}"
