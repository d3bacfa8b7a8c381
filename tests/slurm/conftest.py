"""The Slurm that tests of this folder share."""

from collections.abc import Iterator

import pytest
from helpers.requires import absent
from helpers.slurm_cluster import Slurm, cluster, missing

pytest.register_assert_rewrite("helpers.slurm_scenarios")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running cluster; NNLO_REQUIRE_ALL=1 turns the absence of its programs into a failure."""
    if programs := missing():
        absent(f"no Slurm to be had here: {', '.join(programs)} not found")
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running
