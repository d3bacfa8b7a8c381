"""What a test does where a part of the machine is missing."""

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip with the reason; with NNLO_REQUIRE_ALL=1, as in CI, fail."""
    if os.environ.get("NNLO_REQUIRE_ALL") == "1":
        pytest.fail(what)
    pytest.skip(what)


def optional(module: str) -> ModuleType:
    """Import a package that users may do without."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        absent(f"{module} cannot be imported: {error}")
