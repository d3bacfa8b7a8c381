"""A finished training after an edit of its experiment: kept, resumed, repeated or refused."""

import json
from contextlib import chdir
from dataclasses import replace

import pytest
from helpers.nnlo_command import nnlo
from helpers.observed_training import store, watched
from helpers.training_process import training

import nnlo_lib
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.launch.earlier_training import refuse_shorter_training
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

SMALL = {
    "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
    "parallel": {"transport": "simulated"},
}


def edited(folder, ranks=2, epochs=2, expect=0, **changes):
    run = training(folder, ranks=ranks, train={"epochs": epochs}, **SMALL | changes)
    return run, run.finish(expect=expect)


@pytest.mark.processes
def test_fewer_epochs_are_refused_and_more_resume(tmp_path):
    run, _ = edited(tmp_path)
    before = run.weights
    _, refused = edited(tmp_path, epochs=1, expect=2)
    assert (
        "results/t/allreduce/seed-0 has the results of 2 epochs, which a training of 1 would replace"
        in refused
    )
    assert "Traceback" not in refused
    assert run.weights == before
    _, resumed = edited(tmp_path, epochs=3)
    assert "resumed at epoch 2" in resumed


@pytest.mark.processes
def test_settings_of_the_next_attempt_change_no_result(tmp_path):
    run, _ = edited(tmp_path)
    before = run.weights
    changes = {
        "resources": {"runtime": 7},
        "observe": {"trace": True},
        "data": {"stage_to": str(tmp_path)},
    }
    _, said = edited(tmp_path, **changes)
    assert "already finished" in said
    assert run.weights == before


@pytest.mark.processes
def test_another_number_of_ranks_trains_a_finished_run_again(tmp_path):
    run, _ = edited(tmp_path)
    _, said = edited(tmp_path, ranks=3)
    assert "ends a training with 2 ranks; the training with 3 ranks starts at step 0" in said
    assert [segment["ranks"] for segment in json.loads((run.job / "summary.json").read_text())["legs"]] == [3]


@pytest.mark.processes
def test_a_reverted_edit_of_a_finished_training_is_no_mixture(tmp_path):
    """The tables belong to the weights, also if the training has these settings for the second time."""
    results = []
    for rate in (0.1, 0.5, 0.1):
        optimizer = {"name": "sgd", "lr": rate}
        run = training(tmp_path, ranks=2, train={"epochs": 1, "optimizer": optimizer}, **SMALL)
        run.finish()
        results.append((run.weights, run.history))
    assert results[0] == results[2] != results[1]


def contents(folder):
    """Return content and modification time of each file."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.processes
def test_a_repeated_command_changes_nothing(tmp_path):
    run, _ = edited(tmp_path)
    before = contents(tmp_path / "results")
    said = run.finish()
    assert "already finished: t/allreduce seed 0; results in results/t/allreduce/seed-0/" in said
    manifest = json.loads((run.job / "summary.json").read_text())["data"]["manifest"]
    arguments = "--config", "results/t/allreduce/config.json", "--manifest", manifest
    with chdir(tmp_path):
        done = nnlo(
            "task",
            "train",
            *arguments,
            "--folder",
            "results/t/allreduce/seed-0",
            "--seed",
            "0",
            folder=tmp_path,
        )
        trained = nnlo_lib.train(nnlo_lib.load_experiment("t.yaml"))
    assert done.returncode == 0, done.stderr
    assert "already finished" in done.stderr
    assert tmp_path / trained.folder == run.job
    assert contents(tmp_path / "results") == before
    _, resumed = edited(tmp_path, epochs=3)
    assert "resumed at epoch 2, step 0\n" in resumed
    summary = json.loads((run.job / "summary.json").read_text())
    assert (summary["restarts"], FinishedRun(run.job).restarts) == (0, 0)
    assert not FinishedRun(run.job).attempt_statistics.is_interrupted


@pytest.mark.processes
def test_a_missing_output_is_published_again(tmp_path):
    run, _ = edited(tmp_path)
    before = run.weights
    (run.job / "model.safetensors").unlink()
    run.finish()
    assert run.weights == before
    assert json.loads((run.job / "summary.json").read_text())["restarts"] == 0


@pytest.mark.processes
def test_fewer_steps_per_epoch_are_refused(tmp_path):
    limited = {"batch_size": 16, "steps_per_epoch": 9}
    run = training(tmp_path, train={"epochs": 1, **limited}, **SMALL)
    run.finish()
    refused = training(tmp_path, train={"epochs": 1, **limited, "steps_per_epoch": 5}, **SMALL).finish(
        expect=2
    )
    assert "train.steps_per_epoch: results/t/allreduce/seed-0 has the results of 9 steps" in refused
    assert "Traceback" not in refused


def test_an_unfinished_longer_training_is_not_overwritten(tmp_path):
    manifest = store(tmp_path / "store")
    longer = replace(watched(tmp_path / "job", manifest, {}, train={"epochs": 3}), until=2)
    assert train_simulated(longer, StopFlag())
    for epochs in (2, 3, 4):
        refuse_shorter_training(watched(tmp_path / "job", manifest, {}, train={"epochs": epochs}))
    shorter = watched(tmp_path / "job", manifest, {}, train={"epochs": 1})
    with pytest.raises(UserError, match=r"train\.epochs: .* has an unfinished training beyond epoch 1"):
        train_task(shorter, LaunchOptions())
    # With other settings, the training itself sets the earlier state aside.
    refuse_shorter_training(watched(tmp_path / "job", manifest, {}, train={"epochs": 1, "batch_size": 10}))
