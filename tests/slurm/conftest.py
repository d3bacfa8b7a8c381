"""Fixture: a Slurm cluster that all tests of this folder share."""

from collections.abc import Iterator

import pytest
from helpers.requires import absent
from helpers.slurm_cluster import Slurm, cluster, missing

pytest.register_assert_rewrite("helpers.slurm_stories")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Start a cluster; skip the tests without Slurm's programs, or fail if NNLO_REQUIRE_ALL=1."""
    if programs := missing():
        absent(f"no Slurm to be had here: {', '.join(programs)} not found")
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running
