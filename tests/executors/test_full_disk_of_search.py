"""A disk that is full while a search, or a workflow, writes what it found."""

import pytest
from helpers.small_disk import disk, fill

from nnlo_lib.executors.mpi_pool.coordinator import PoolUtilization

__all__ = ["disk"]

pytestmark = pytest.mark.processes


def test_the_statistics_of_a_pool_do_not_end_its_search(disk, caplog):
    """Before, an OSError ended the coordinator, which then did not write how the search had ended."""
    fill(disk)
    PoolUtilization(2).write(disk)
    assert "No space left on device" in caplog.text
