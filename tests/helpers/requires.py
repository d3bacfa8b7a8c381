"""Skip or fail tests if a program, package or data set is missing."""

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip the test with the reason `what`; fail it if NNLO_REQUIRE_ALL=1, as in CI."""
    if os.environ.get("NNLO_REQUIRE_ALL") == "1":
        pytest.fail(what)
    pytest.skip(what)


def optional(module: str) -> ModuleType:
    """Import an optional dependency; skip or fail the test if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        absent(f"{module} cannot be imported: {error}")
