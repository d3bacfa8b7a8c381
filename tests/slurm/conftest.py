"""Fixtures: a Slurm cluster and a clone with converted data, which all tests of this folder share."""

from collections.abc import Iterator

import pytest
from helpers.requires import absent
from helpers.slurm_cluster import Slurm, cluster, missing

pytest.register_assert_rewrite("helpers.slurm_stories")
from helpers.slurm_stories import Prepared  # noqa: E402


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    """Start the undisturbed training, beside the start of the cluster; skip without Slurm's programs, or fail."""
    if programs := missing():
        absent(f"no Slurm to be had here: {', '.join(programs)} not found")
    prepared = Prepared.start(tmp_path_factory.mktemp("prepared") / "checkout")
    yield prepared
    prepared.training.kill()


@pytest.fixture(scope="session")
def slurm(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Start a cluster."""
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running
