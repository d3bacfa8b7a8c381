"""Stores that the trainings of this folder share."""

from pathlib import Path

import pytest
from helpers.observed_training import store
from helpers.training_here import digits


@pytest.fixture(scope="session")
def manifest() -> Path:
    """Return the manifest of the embedded digits."""
    return digits()


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the manifest of 200 images in two easily separable classes."""
    return store(tmp_path_factory.mktemp("store"))
