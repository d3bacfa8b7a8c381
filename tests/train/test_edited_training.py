"""A training after an edit of its experiment: kept, resumed, repeated, set aside or refused."""

import json
from contextlib import chdir

from helpers.nnlo_command import nnlo
from helpers.training_here import training_here

import nnlo_lib
from nnlo_lib.state.finished_run import FinishedRun

SMALL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}
JOB = "results/t/allreduce/seed-0"


def edited(folder, ranks=2, epochs=2, expect=0, train=None, **changes):
    """Write an experiment with these settings and run it; return the training and the output."""
    train = {"epochs": epochs, "batch_size": 64} | (train or {})
    run = training_here(folder, ranks=ranks, model=SMALL, train=train, **changes)
    return run, run.finish(expect=expect)


def summary(run):
    return json.loads((run.job / "summary.json").read_text())


def test_fewer_epochs_are_refused_and_more_resume_to_the_bits_of_a_longer_training(tmp_path):
    run, _ = edited(tmp_path / "twice")
    before = run.weights
    _, refused = edited(tmp_path / "twice", epochs=1, expect=2)
    assert f"{JOB} has the results of 2 epochs, which a training of 1 would replace" in refused
    assert "Traceback" not in refused
    assert run.weights == before
    _, resumed = edited(tmp_path / "twice", epochs=3)
    assert "resumed at epoch 2" in resumed
    once, _ = edited(tmp_path / "once", epochs=3)
    assert (run.weights, run.history) == (once.weights, once.history)


def test_another_number_of_ranks_trains_a_finished_run_again(tmp_path):
    run, _ = edited(tmp_path)
    _, said = edited(tmp_path, ranks=3)
    assert "parallel.ranks was 2 and is 3; set aside in results/t/allreduce/former/1-seed-0" in said
    assert [segment["ranks"] for segment in summary(run)["legs"]] == [3]


def contents(folder):
    """Return content and modification time of each file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_repeated_command_changes_nothing(tmp_path):
    run, _ = edited(tmp_path)
    before = contents(tmp_path / "results")
    assert f"already finished: t/allreduce seed 0; results in {JOB}/" in run.finish()
    place = ["--manifest", summary(run)["data"]["manifest"], "--folder", JOB, "--seed", "0"]
    done = nnlo("task", "train", "--config", "results/t/allreduce/config.json", *place, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "already finished" in done.stderr
    with chdir(tmp_path):
        trained = nnlo_lib.train(nnlo_lib.load_experiment("t.yaml"))
    assert tmp_path / trained.folder == run.job
    assert contents(tmp_path / "results") == before
    _, resumed = edited(tmp_path, epochs=3)
    assert "resumed at epoch 2, step 0\n" in resumed
    assert (summary(run)["restarts"], FinishedRun(run.job).restarts) == (0, 0)
    assert not FinishedRun(run.job).attempt_statistics.unfinished_by_reason
