"""The Slurm that tests of this folder share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib adds no folder by itself
from absent import absent
from cluster import Slurm, cluster, missing

pytest.register_assert_rewrite("stories")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running cluster; NNLO_REQUIRE_ALL=1 turns the absence of its programs into a failure."""
    if programs := missing():
        absent(f"no Slurm to be had here: {', '.join(programs)} not found")
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running
