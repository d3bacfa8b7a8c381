"""A disk that is full while a search, or a workflow, writes what it found."""

from pathlib import Path

import pytest
from helpers.small_disk import disk, fill
from helpers.synthetic_search import MadeUp

from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.mpi_pool.coordinator import PoolUtilization
from nnlo_lib.report.page import write_search_page
from nnlo_lib.search.best import write_best_file, write_outcome
from nnlo_lib.workflow.outcome import mark_as_partial

__all__ = ["disk"]

pytestmark = pytest.mark.processes


@pytest.fixture
def search(disk, monkeypatch):
    """Return the folder of a search on the small disk, which is not full yet."""
    monkeypatch.chdir(disk)
    return MadeUp(disk).trial().trial(status="failed", error="boom").folder


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_outcome, "trials.csv"),
        (write_best_file, "best.yaml"),
        (lambda folder: write_search_page(folder / "report.html", folder), "report.html"),
    ],
)
def test_a_result_is_the_old_or_the_whole_new_one(search, disk, write, name):
    write(search)
    old = (search / name).read_bytes()
    fill(disk)
    with pytest.raises(UserError, match=rf"cannot write .*{name}: .*No space left on device"):
        write(search)
    assert (search / name).read_bytes() == old
    assert not list(disk.rglob("*.part"))


def test_a_stamp_of_the_workflow_is_whole_or_absent(disk, monkeypatch):
    """Before, an OSError with a traceback, and an empty stamp."""
    monkeypatch.chdir(disk)
    fill(disk)
    with pytest.raises(UserError, match=r"cannot write .*partial\.txt: .*No space left on device"):
        mark_as_partial(Path("results/t"))
    assert not [path for path in disk.rglob("*") if path.is_file() and path.name != "ballast"]


def test_the_statistics_of_a_pool_do_not_end_its_search(disk, caplog):
    """Before, an OSError ended the coordinator, which then did not write how the search had ended."""
    fill(disk)
    PoolUtilization(2).write(disk)
    assert "No space left on device" in caplog.text
