"""Tests of early stopping, metric targets and `restore_best`, which publishes the weights with the best metric."""

import csv
import json
import shutil
import signal

import pytest
from helpers.training_process import training, under_way
from pydantic import ValidationError

from nnlo_lib.config.stopping import EarlyStoppingConfig, TargetMetricConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.train.evaluation.early_stopping import is_best, reason_to_stop


def rows(values, metric="val_loss"):
    return [{"epoch": i + 1, "step": i + 1, metric: value} for i, value in enumerate(values)]


def stops_at(values, metric="val_loss", **train):
    """Return the number of the validation after which a training stops, or None if it does not stop."""
    settings = TrainConfig(**train)
    table = rows(values, metric)
    return next((i for i in range(1, len(table) + 1) if reason_to_stop(settings, table[:i])), None)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([3, 2, 1, 1, 1], 5),  # an equal value is no improvement
        ([3, 2, 2.5, 1.9, 2, 2], 6),
        ([5, 4, 3, 2, 1], None),
        ([1, 2, 3], 3),
    ],
)
def test_patience_counts_validations_that_were_not_the_best(values, wanted):
    assert stops_at(values, early_stopping={"metric": "val_loss", "patience": 2}) == wanted


def test_min_delta_asks_for_more():
    rule = {"metric": "val_loss", "patience": 2, "min_delta": 0.5}
    assert stops_at([3, 2.8, 2.6], early_stopping=rule) == 3
    assert stops_at([3, 2.4, 1.8, 1.2], early_stopping=rule) is None


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([4, 3, 3.5, 3.6], 4),  # mean(3.5, 3.6) > mean(4, 3)
        ([4, 3, 3.5, 3.5], None),  # equal means do not stop the training
        ([1, 9, 1], None),  # fewer values than twice the patience
        ([9, 9, 1, 1, 2, 1], 6),
    ],
)
def test_smoothed_rule_of_nnlo(values, wanted):
    assert stops_at(values, early_stopping="val_loss,~<,2") == wanted


def test_larger_is_better_by_name_or_by_sign():
    assert (
        stops_at([0.5, 0.6, 0.6], "val_accuracy", early_stopping={"metric": "val_accuracy", "patience": 1})
        == 3
    )
    assert stops_at([0.5, 0.6, 0.6], "val_accuracy", early_stopping="val_acc,>,1") == 3
    assert stops_at([0.5, 0.6, 0.6], "val_accuracy", early_stopping="val_acc,<,1") == 2


def test_target():
    assert stops_at([0.9, 0.97, 0.98], "val_accuracy", target="val_acc,>,0.97") == 3
    assert stops_at([0.3, 0.1], "train_loss", target="loss,<,0.2") == 2
    assert stops_at([0.3, 0.1], "train_loss", target={"metric": "train_loss", "value": 1e-3}) is None


def test_of_equal_values_the_first_is_best():
    values = [3, 1, 1, 2]
    assert [is_best(rows(values)[: i + 1], "val_loss", False) for i in range(4)] == [True, True, False, False]
    assert [is_best(rows(values)[: i + 1], "val_loss", True) for i in range(4)] == [True, False, False, False]


def test_what_is_no_number_or_was_not_measured_is_not_best():
    values = [float("nan"), 3, float("nan"), 2]
    assert [is_best(rows(values)[: i + 1], "val_loss", False) for i in range(4)] == [False, True, False, True]
    assert not is_best([*rows([3, 2]), {"epoch": 2, "val_loss": 1}], "train_loss", False)
    assert not is_best([], "val_loss", False)


@pytest.mark.parametrize("text", ["val_loss", "val_loss,=,4", "val_loss,<,0", "val_loss,<,four", ""])
def test_a_text_that_is_not_read(text):
    with pytest.raises(ValidationError, match="such as"):
        EarlyStoppingConfig.model_validate(text)


@pytest.mark.parametrize("text", ["val_acc,>,.", "val_acc,>,1e", "val_acc,>,1-2"])
def test_a_number_that_is_not_read(text):
    with pytest.raises(ValidationError, match="such as"):
        TargetMetricConfig.model_validate(text)


def test_a_smoothed_target_is_not_read():
    with pytest.raises(ValidationError, match=r"val_acc,>,0\.97"):
        TargetMetricConfig.model_validate("val_acc,~>,0.97")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"target": "val_top5_accuracy,>,0.9"}, "metrics"),
        ({"restore_best": "val_speed"}, "val_speed"),
        ({"early_stopping": {"metric": "loss"}}, "train_"),
    ],
)
def test_what_is_not_measured_is_refused(tmp_path, train, said):
    assert said in training(tmp_path, train=train).finish(expect=2)


@pytest.mark.processes
def test_without_validation_nothing_is_watched(tmp_path):
    run = training(tmp_path, train={"early_stopping": "val_loss,<,2"}, data={"validation": 0})
    assert "data.validation" in run.finish(expect=2)


def virtual(ranks):
    return {"ranks": ranks, "transport": "simulated"}


@pytest.mark.processes
def test_a_target_ends_the_run(tmp_path):
    run = training(tmp_path, train={"epochs": 30, "target": "val_acc,>,0.9"}, parallel=virtual(2))
    run.finish()
    accuracies = [row["val_accuracy"] for row in run.rows]
    assert accuracies[-1] > 0.9
    assert all(value <= 0.9 for value in accuracies[:-1])
    summary = json.loads((run.job / "summary.json").read_text())
    assert summary["epochs"] == len(accuracies) < 30
    assert "0.9" in summary["ended_early"]
    run.finish()
    assert run.epochs_done() == len(accuracies)


@pytest.mark.processes
def test_the_best_weights_are_those_of_a_run_that_ended_there(tmp_path):
    """The learning rate is too large, so that the last epoch is not the best one."""
    train = {"epochs": 8, "optimizer": {"lr": 0.12}}
    best = training(tmp_path / "best", train=train | {"restore_best": "val_loss"}, parallel=virtual(2))
    best.finish()
    losses = [row["val_loss"] for row in best.rows]
    at = losses.index(min(losses)) + 1
    assert at < 8, "the oracle needs a run whose last epoch is not its best"
    short = training(tmp_path / "short", train=train | {"epochs": at}, parallel=virtual(2))
    short.finish()
    assert best.weights == short.weights


def summary_of(run):
    return json.loads((run.job / "summary.json").read_text())


@pytest.mark.processes
def test_with_more_ranks_later_validations_are_still_the_later_ones(tmp_path):
    """With more ranks an epoch has fewer steps; the step numbers of the resumed run still increase."""
    train = {"epochs": 4, "batch_size": 32, "restore_best": "val_loss"}
    training(tmp_path, train=train, ranks=1, parallel=virtual(1)).finish()
    more = training(tmp_path, train=train | {"epochs": 8}, ranks=4, parallel=virtual(4))
    more.finish()
    losses = [row["val_loss"] for row in more.rows]
    steps = [row["step"] for row in more.rows]
    assert steps == sorted(set(steps))
    assert min(losses[4:]) < min(losses[:4])
    assert summary_of(more)["final"]["val_loss"] == min(losses)


@pytest.mark.processes
def test_a_target_that_is_reached_before_the_first_step_waits_for_an_epoch(tmp_path):
    train = {"epochs": 6, "evaluate_before": True, "target": "val_acc,>,0.05"}
    run = training(tmp_path, train=train, parallel=virtual(2))
    said = run.finish()
    assert len(run.rows) == 1
    assert "ended early: target" in said.splitlines()[-3] + said.splitlines()[-2] + said.splitlines()[-1]


@pytest.mark.processes
def test_with_fewer_epochs_it_is_another_training(tmp_path):
    train = {"epochs": 4, "batch_size": 32}
    longer = training(tmp_path / "one", train=train, parallel=virtual(2))
    longer.finish()
    shorter = training(tmp_path / "one", train=train | {"epochs": 2}, parallel=virtual(2))
    assert "has the results of 4 epochs, which a training of 2 would replace" in shorter.finish(expect=2)
    (longer.job / "summary.json").unlink()
    assert "has an unfinished training beyond epoch 2" in shorter.finish(expect=2)
    shutil.rmtree(longer.job / "state")  # as the message says
    shorter.finish()
    fresh = training(tmp_path / "two", train=train | {"epochs": 2}, parallel=virtual(2))
    fresh.finish()
    assert shorter.weights == fresh.weights
    assert shorter.history == fresh.history


@pytest.mark.processes
def test_no_validations_of_an_earlier_experiment_stay(tmp_path):
    training(tmp_path, train={"epochs": 1, "validate_every": 10}, parallel=virtual(2)).finish()
    plain = training(tmp_path, train={"epochs": 1}, parallel=virtual(2))
    assert (plain.job / "validations.csv").exists()
    plain.finish()
    assert not (plain.job / "validations.csv").exists()
    assert "validations.csv" not in summary_of(plain)["outputs"]


CASES = {
    "allreduce": {"algorithm": "allreduce"},
    "diloco": {"algorithm": {"name": "diloco", "sync_every": 10}},
    "dsgd": {"algorithm": "dsgd"},
    "easgd": {"algorithm": {"name": "easgd", "synchronous": True, "sync_every": 3}},
    "downpour": {"algorithm": {"name": "downpour", "synchronous": True}},
}


@pytest.mark.processes
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_interrupted_equals_undisturbed(tmp_path, settings):
    train = {
        "epochs": 5, "batch_size": 16, "validate_every": 13, "evaluate_before": True,
        "restore_best": "val_loss", "early_stopping": "val_loss,~<,8",
    }  # fmt: skip
    real = training(tmp_path / "real", **settings, ranks=3, train=train)
    simulated = training(tmp_path / "virtual", **settings, ranks=3, train=train, parallel=virtual(3))
    with under_way(real, 1) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
        assert process.returncode == 75
    real.finish()
    simulated.finish()
    assert real.weights == simulated.weights
    assert real.history == simulated.history
    assert validations(real) == validations(simulated)
    assert validations(real)[0]["step"] == "0"


def validations(run):
    with (run.job / "validations.csv").open() as file:
        return [
            {name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)
        ]


@pytest.mark.processes
def test_a_run_that_ends_within_an_epoch_is_whole(tmp_path):
    train = {"epochs": 30, "batch_size": 8, "validate_every": 20, "target": "val_acc,>,0.5"}
    run = training(tmp_path, train=train, parallel=virtual(2))
    run.finish()
    table = validations(run)
    assert float(table[-1]["val_accuracy"]) > 0.5
    assert all(int(row["step"]) % 20 == 0 for row in table)
    assert run.rows[-1]["step"] == int(table[-1]["step"])
    assert "repeated steps: 0\n" in run_verify(run)


def run_verify(run):
    import subprocess
    import sys
    from pathlib import Path

    from helpers.repository_copy import environment

    nnlo = str(Path(sys.executable).with_name("nnlo"))
    done = subprocess.run(
        [nnlo, "verify", str(run.job)],
        cwd=run.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
