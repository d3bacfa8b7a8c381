"""Full and read-only disks: the last good checkpoint stays, and an error message names the cause."""

import json
import subprocess
from unittest.mock import patch

import pytest
from helpers.small_disk import disk, fill
from helpers.training_here import share_store, training_here

from nnlo_lib.core import failpoints

__all__ = ["disk"]
pytestmark = pytest.mark.processes


def on_disk(make, folder, disk, **settings):
    """Return a training with the results on the small disk and the data on another disk."""
    run = make(folder, **settings)
    share_store(folder)
    (disk / "results").mkdir()
    (folder / "results").symlink_to(disk / "results")
    return run


def saved_steps(run):
    manifests = sorted((run.job / "state/checkpoints").glob("[0-9]*/manifest.json"))
    return [json.loads(path.read_text())["step"] for path in manifests]


def test_a_disk_that_is_free_again_is_written_again(tmp_path, disk):
    run = on_disk(training_here, tmp_path, disk, train={"epochs": 6, "batch_size": 64})
    events = iter(["", "full", "", "", "", "", "free"])  # of two ranks in each epoch

    def at_the_end_of_an_epoch(place):
        if place == "training.epoch":
            event = next(events, "")
            fill(disk) if event == "full" else (disk / "ballast").unlink() if event == "free" else None

    with patch.object(failpoints, "_handlers", [at_the_end_of_an_epoch]):
        said = run.finish()
    assert "could not be written" in said
    assert saved_steps(run)[-1] == run.rows[-1]["step"]
    assert [row["epoch"] for row in run.rows] == list(range(1, 7))


def test_a_read_only_disk_is_refused_before_anything_is_trained(tmp_path, disk):
    run = on_disk(training_here, tmp_path, disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    said = run.finish(expect=2)
    assert "cannot write" in said.splitlines()[-1]
    assert "Read-only file system" in said
    assert "epoch   1" not in said
