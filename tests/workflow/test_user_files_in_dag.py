"""Snakemake trains and evaluates again the runs whose files of the user were edited, and only these."""

import re

import pytest
from helpers.repository_copy import Checkout, copy_checkout
from helpers.user_project import COMMON, EDITS, RUNS, edit, write_project

pytestmark = pytest.mark.snakemake


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return a checkout in which the project's DAG has ended."""
    checkout = copy_checkout(tmp_path_factory.mktemp("dag") / "checkout")
    write_project(checkout.folder)
    checkout.experiment(**COMMON | {"name": "tiny", "runs": RUNS})
    done = checkout.snakemake()
    assert done.returncode == 0, done.stdout
    assert "Nothing to be done" in checkout.snakemake("--dry-run").stdout
    return checkout


@pytest.mark.parametrize("change", EDITS, ids=[change.file for change in EDITS])
def test_an_edit_reruns_what_depends_on_the_file(finished, change):
    path = finished.folder / change.file
    before = path.read_bytes()
    edit(finished.folder, change.file)
    plan = finished.snakemake("--dry-run").stdout
    path.write_bytes(before)
    assert f"train {change.run} seed-0" in plan
    assert f"evaluate {change.run} seed-0" in plan
    assert re.search(rf"Updated input files: .*{re.escape(change.file)}", plan)
    for other in set(RUNS) - {change.run}:
        assert f"train {other} seed-0" not in plan
