"""Files of the user that settings name: code, networks, weights and other files."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnlo_lib.core.imported_files import imported_files

CODE_REFERENCE = re.compile(r"(.+\.py)(:\w+)?(@.+)?")  # path.py, path.py:name, path.py:name@output


def input_files(settings: Any) -> tuple[str, ...]:
    """Return the user's files that settings name, in the order of their first appearance.

    Code is followed through its imports (core.imported_files). Every other text with a suffix counts if it is
    the path of a file, also in arguments of the user's own classes and functions.

    Args:
        settings: JSON value.
    """
    return tuple(dict.fromkeys(file for text in _texts(settings) for file in _files_of(text)))


def _files_of(text: str) -> tuple[str, ...]:
    if code := CODE_REFERENCE.fullmatch(text):
        return imported_files(code[1])
    return (text,) if Path(text).suffix and os.path.isfile(text) else ()


def _texts(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, dict | list):
        for each in settings.values() if isinstance(settings, dict) else settings:
            yield from _texts(each)
