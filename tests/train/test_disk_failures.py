"""Full and read-only disks: the last good checkpoint stays, and an error message names the cause."""

import json
import subprocess
from unittest.mock import patch

import pytest
from helpers.small_disk import disk, fill, kept_full
from helpers.training_here import share_store, training_here
from helpers.training_process import started, under_way, wait

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


WAITING = """
import time
from pathlib import Path

from torch import nn

class Waiting(nn.Linear):
    calls = 0

    def forward(self, images):
        self.calls += 1
        # In the third epoch, after 41 steps and the validation of each epoch before.
        while self.calls == 105 and not (Path(__file__).parent / "go").exists():
            time.sleep(0.02)
        return super().forward(images.flatten(1))

def build(shape, classes):
    return Waiting(64, classes)
"""


@pytest.mark.real
@pytest.mark.mpi
def test_a_full_disk_costs_new_checkpoints_and_not_the_old_ones(tmp_path, disk):
    for folder in (tmp_path, tmp_path / "undisturbed"):
        folder.mkdir(exist_ok=True)
        (folder / "net.py").write_text(WAITING)
    settings = {"model": {"name": "net.py:build"}, "train": {"epochs": 4}}
    run = on_disk(started, tmp_path, disk, **settings)
    with under_way(run, 2) as process:
        wait("a checkpoint", lambda: bool(saved_steps(run)) or process.poll() is not None)
        fill(disk)
        before = saved_steps(run)
        (tmp_path / "go").touch()
        with kept_full(disk):
            said, _ = process.communicate(timeout=800)
    assert process.returncode == 1, said
    assert "could not be written" in said
    assert "No space left on device" in said
    assert "Traceback" not in said
    assert saved_steps(run)[-1] >= before[-1]
    (disk / "ballast").unlink()
    assert "resumed at epoch" in run.finish()
    undisturbed = training_here(tmp_path / "undisturbed", **settings)
    (undisturbed.folder / "go").touch()
    undisturbed.finish()
    assert (run.weights, run.history) == (undisturbed.weights, undisturbed.history)


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
