"""A disk that is full while a search, or a workflow, writes what it found."""

import pytest
from helpers.small_disk import disk, fill

from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.mpi_pool.coordinator import PoolUtilization
from nnlo_lib.experiment.owner import record_owner

__all__ = ["disk"]

pytestmark = pytest.mark.processes


def test_a_record_of_the_workflow_is_whole_or_absent(disk, monkeypatch):
    """Before, an OSError with a traceback, and an empty file."""
    monkeypatch.chdir(disk)
    fill(disk)
    with pytest.raises(UserError, match=r"cannot write .*experiment\.json: .*No space left on device"):
        record_owner("t", "t.yaml")
    assert not [path for path in disk.rglob("*") if path.is_file() and path.name != "ballast"]


def test_the_statistics_of_a_pool_do_not_end_its_search(disk, caplog):
    """Before, an OSError ended the coordinator, which then did not write how the search had ended."""
    fill(disk)
    PoolUtilization(2).write(disk)
    assert "No space left on device" in caplog.text
