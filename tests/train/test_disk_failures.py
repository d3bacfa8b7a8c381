"""Full, read-only and removed disks: the last good checkpoint stays, and an error message names the cause."""

import json
import shutil
import subprocess

import pytest
from helpers.small_disk import disk, fill, kept_full
from helpers.training_process import training, under_way, wait

from nnlo_lib.state.step_marker import read_step_marker

__all__ = ["disk"]

pytestmark = pytest.mark.processes

LONG = {"epochs": 400}


def on_disk(tmp_path, disk, **changes):
    """Return a training with the results on the small disk and the data on another disk."""
    (disk / "results").mkdir()
    (tmp_path / "results").symlink_to(disk / "results")
    return training(tmp_path, **changes)


def steps_saved(run):
    manifests = sorted((run.job / "state/checkpoints").glob("[0-9]*/manifest.json"))
    return [json.loads(path.read_text())["step"] for path in manifests]


def test_a_full_disk_costs_new_checkpoints_and_not_the_old_ones(tmp_path, disk):
    run = on_disk(tmp_path, disk, train={"epochs": 60})
    with under_way(run, 2) as process:
        fill(disk)
        before = steps_saved(run)
        with kept_full(disk):
            said, _ = process.communicate(timeout=600)
    assert process.returncode == 1, said
    assert "could not be written" in said
    assert "No space left on device" in said
    assert "Traceback" not in said
    assert steps_saved(run)[-1:] >= before[-1:]
    (disk / "ballast").unlink()
    assert "resumed at epoch" in run.finish()
    undisturbed = training(tmp_path / "undisturbed", train={"epochs": 60})
    undisturbed.finish()
    assert run.weights == undisturbed.weights
    assert run.history == undisturbed.history


def test_a_disk_that_is_free_again_is_written_again(tmp_path, disk):
    run = on_disk(tmp_path, disk, train={"epochs": 150})
    with under_way(run, 2) as process:
        fill(disk)
        full = steps_saved(run)[-1]
        wait(
            "two epochs without a checkpoint", lambda: read_step_marker(run.job / "state")[1] > full + 2 * 50
        )
        (disk / "ballast").unlink()
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert steps_saved(run)[-1] > full
    assert [row["epoch"] for row in run.rows] == list(range(1, 151))


def test_a_folder_that_vanishes_ends_the_run_with_its_name(tmp_path):
    run = training(tmp_path, train=LONG)
    with under_way(run, 2) as process:
        shutil.move(tmp_path / "results", tmp_path / "elsewhere")
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert str(run.job.relative_to(tmp_path)) in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_read_only_disk_is_refused_before_anything_is_trained(tmp_path, disk):
    run = on_disk(tmp_path, disk)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    said = run.finish(expect=2)
    assert "cannot write" in said.splitlines()[-1]
    assert "Read-only file system" in said
    assert "epoch   1" not in said
