"""The stand-in for LSF that tests of this folder share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "stand_in"))
from helpers.lsf_cluster import Lsf


@pytest.fixture(scope="module")
def lsf(tmp_path_factory: pytest.TempPathFactory) -> Lsf:
    """An LSF without jobs."""
    return Lsf(tmp_path_factory.mktemp("lsf"))
