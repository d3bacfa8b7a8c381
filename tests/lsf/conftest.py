"""Fixture: a stand-in for LSF."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "stand_in"))
from helpers.lsf_cluster import Lsf


@pytest.fixture(scope="module")
def lsf(tmp_path_factory: pytest.TempPathFactory) -> Lsf:
    """Return a stand-in for LSF without jobs, for the tests of one file."""
    return Lsf(tmp_path_factory.mktemp("lsf"))
