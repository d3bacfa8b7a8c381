"""A finished training after an edit of its experiment: kept, resumed, repeated or refused."""

import json

import pytest
from helpers.training_process import training

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
    assert "resumed at epoch 2" in said
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
