"""Tests of early stopping, metric targets and `restore_best`, which publishes the weights with the best metric."""

import csv
import json

import pytest
import yaml
from helpers.nnlo_command import nnlo
from helpers.observed_training import watched
from helpers.training_here import simulate, training_here
from helpers.training_process import TIMINGS
from pydantic import ValidationError

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.checkpoint.commit import checkpoints_to_keep
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.config.stopping import EarlyStoppingConfig, TargetMetricConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.evaluation.early_stopping import is_best, reason_to_stop


def rows(values, metric="val_loss"):
    return [{"epoch": i + 1, "step": i + 1, metric: value} for i, value in enumerate(values)]


PATIENT = {"early_stopping": {"metric": "val_loss", "patience": 2}}
DEMANDING = {"early_stopping": {"metric": "val_loss", "patience": 2, "min_delta": 0.5}}
SMOOTHED = {"early_stopping": "val_loss,~<,2"}  # NNLO's rule
HIGHER, LOWER = ({"early_stopping": f"val_acc,{sign},1"} for sign in "><")
RULES = [
    (PATIENT, [3, 2, 1, 1, 1], 5),  # an equal value is no improvement
    (PATIENT, [3, 2, 2.5, 1.9, 2, 2], 6),
    (PATIENT, [5, 4, 3, 2, 1], None),
    (PATIENT, [1, 2, 3], 3),
    (DEMANDING, [3, 2.8, 2.6], 3),
    (DEMANDING, [3, 2.4, 1.8, 1.2], None),
    (SMOOTHED, [4, 3, 3.5, 3.6], 4),  # mean(3.5, 3.6) > mean(4, 3)
    (SMOOTHED, [4, 3, 3.5, 3.5], None),  # equal means do not stop the training
    (SMOOTHED, [1, 9, 1], None),  # fewer values than twice the patience
    (SMOOTHED, [9, 9, 1, 1, 2, 1], 6),
    ({"early_stopping": {"metric": "val_accuracy", "patience": 1}}, [0.5, 0.6, 0.6], 3),
    (HIGHER, [0.5, 0.6, 0.6], 3),
    (LOWER, [0.5, 0.6, 0.6], 2),
    ({"target": "val_acc,>,0.97"}, [0.9, 0.97, 0.98], 3),
    ({"target": "loss,<,0.2"}, [0.3, 0.1], 2),
    ({"target": {"metric": "train_loss", "value": 1e-3}}, [0.3, 0.1], None),
]


@pytest.mark.parametrize(("train", "values", "wanted"), RULES)
def test_the_validation_after_which_a_training_stops(train, values, wanted):
    settings = TrainConfig(**train)
    (metric,) = settings.watched.values()
    table = rows(values, metric)
    ends = (i for i in range(1, len(table) + 1) if reason_to_stop(settings, table[:i]))
    assert next(ends, None) == wanted


def test_of_equal_values_the_first_is_best():
    values = [3, 1, 1, 2]
    assert [is_best(rows(values)[: i + 1], "val_loss", False) for i in range(4)] == [True, True, False, False]
    assert [is_best(rows(values)[: i + 1], "val_loss", True) for i in range(4)] == [True, False, False, False]


def test_what_is_no_number_or_was_not_measured_is_not_best():
    values = [float("nan"), 3, float("nan"), 2]
    assert [is_best(rows(values)[: i + 1], "val_loss", False) for i in range(4)] == [False, True, False, True]
    assert not is_best([*rows([3, 2]), {"epoch": 2, "val_loss": 1}], "train_loss", False)
    assert not is_best([], "val_loss", False)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        *((EarlyStoppingConfig, text) for text in ("val_loss", "val_loss,=,4", "val_loss,<,0", "val_loss,<,four", "")),
        *((TargetMetricConfig, text) for text in ("val_acc,>,.", "val_acc,>,1e", "val_acc,>,1-2", "val_acc,~>,0.97")),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_read_is_refused_with_an_example(config, text):
    with pytest.raises(ValidationError, match="such as" if "~" not in text else r"val_acc,>,0\.97"):
        config.model_validate(text)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train": {"target": "val_top5_accuracy,>,0.9"}}, "metrics"),
        ({"train": {"restore_best": "val_speed"}}, "val_speed"),
        ({"train": {"early_stopping": {"metric": "loss"}}}, "train_"),
        ({"train": {"early_stopping": "val_loss,<,2"}, "data": {"validation": 0}}, "data.validation"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused(tmp_path, settings, said):
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({"name": "t", **settings}))
    with pytest.raises(UserError, match=said):
        load_experiment(tmp_path / "t.yaml")


def summary_of(job):
    return json.loads((job.folder / "summary.json").read_text())


def history_of(job):
    """Return the metrics of each epoch without timings."""
    rows = read_rows(job.paths.state.history)
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


def trained(folder, store, calls=(), ranks=2, **settings):
    """Train to the end with a stop after each number of calls; return the task."""
    return simulate(watched(folder, store, {}, ranks, **settings), *calls)


def test_a_target_ends_the_run(tmp_path, small_store):
    job = trained(tmp_path, small_store, train={"epochs": 30, "target": "val_acc,>,0.9"})
    *others, last = [row["val_accuracy"] for row in history_of(job)]
    assert last > 0.9 >= max(others)
    assert summary_of(job)["epochs"] == len(others) + 1 < 30
    assert "0.9" in summary_of(job)["ended_early"]


def test_a_target_that_is_reached_before_the_first_step_waits_for_an_epoch(tmp_path, small_store):
    train = {"epochs": 6, "evaluate_before": True, "target": "val_acc,>,0.05"}
    job = trained(tmp_path, small_store, train=train)
    assert len(history_of(job)) == 1
    assert "target" in summary_of(job)["ended_early"]


# Learning rates so large that the last epoch is not the best one.
LARGE = {"epochs": 8, "optimizer": {"name": "sgd", "lr": 2.0, "momentum": 0.9}}
MODEL = {"name": "simplemlp", "args": {"hidden": 16}}
GRAPH = {"name": "directed_edges", "edges": [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]}
PUBLISHED = {
    "allreduce": {},
    # Push-sum: the mean of the best models uses the weights from the time of the measurement.
    "gosgd": {"algorithm": {"name": "gosgd", "probability": 0.4}},
    "sgp": {"algorithm": {"name": "sgp"}, "topology": GRAPH},
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_the_best_weights_are_those_of_a_run_that_ended_there(tmp_path, small_store, case):
    settings = PUBLISHED[case] | {"model": MODEL, "ranks": 4}
    best = trained(tmp_path / "best", small_store, train=LARGE | {"restore_best": "val_loss"}, **settings)
    losses = [row["val_loss"] for row in history_of(best)]
    at = losses.index(min(losses)) + 1
    assert at < len(losses), "the oracle needs a run whose last epoch is not its best"
    short = trained(tmp_path / "short", small_store, train=LARGE | {"epochs": at}, **settings)
    assert best.paths.model.read_bytes() == short.paths.model.read_bytes()


# The share of correct samples, and its opposite in a name that promises the wrong direction.
METRICS = """
def f1(outputs, targets):
    return (outputs.argmax(1) == targets).float()

def brier_score(outputs, targets):
    return 1 - f1(outputs, targets)
"""


@pytest.mark.parametrize(("name", "better"), [("f1", "larger"), ("brier_score", "smaller")])
def test_best_follows_the_direction_in_the_settings(tmp_path, manifest, name, better):
    """The rate is large enough that neither the first nor the last epoch is the best."""
    (tmp_path / "mine.py").write_text(METRICS)
    best = {"metric": f"val_{name}", "better": better}
    optimizer = {"name": "sgd", "lr": 0.6, "momentum": 0.9}
    job = trained(
        tmp_path / "job", manifest, model=MODEL, metrics=[f"{tmp_path}/mine.py:{name}"],
        train={"epochs": 4, "batch_size": 100, "optimizer": optimizer, "restore_best": best},
        checkpoint={"best": best | {"metric": name}, "keep": 1},
    )  # fmt: skip
    values = [row[f"val_{name}"] for row in history_of(job)]
    best = (max if better == "larger" else min)(values)
    assert min(values) < max(values)
    assert summary_of(job)["final"][f"val_{name}"] == best
    assert summary_of(job)["published_step"] == history_of(job)[values.index(best)]["step"]


@pytest.mark.parametrize(("better", "kept"), [("larger", 2), ("smaller", 1)])
def test_the_best_checkpoint_follows_the_direction(better, kept):
    values = {1: 0.1, 2: 0.9, 3: 0.5, 4: 0.5}
    manifests = {
        number: CheckpointManifest("key", "code", 1, number, number, {"val_f1": value}, 0.0)
        for number, value in values.items()
    }
    config = CheckpointConfig(keep=1, best={"metric": "f1", "better": better})
    assert checkpoints_to_keep(config, manifests) == {4, kept}


def test_a_metric_without_a_direction_keeps_its_form():
    """The form of the settings is part of the run's hash, and of the key of its checkpoints."""
    assert TrainConfig(restore_best="val_loss").model_dump()["restore_best"] == "val_loss"
    assert CheckpointConfig(best="val_loss").model_dump()["best"] == "loss"


CASES = {
    "allreduce": {},
    "diloco": {"algorithm": {"name": "diloco", "sync_every": 10}},
    "dsgd": {"algorithm": {"name": "dsgd"}, "topology": {"name": "cycle"}},
    "easgd": {"algorithm": {"name": "easgd", "synchronous": True, "sync_every": 3}, "ranks": 4},
    "downpour": {"algorithm": {"name": "downpour", "synchronous": True}, "ranks": 4},
}


@pytest.mark.parametrize("case", CASES)
def test_interrupted_equals_undisturbed(tmp_path, small_store, case):
    train = {
        "epochs": 5, "batch_size": 10, "validate_every": 4, "evaluate_before": True,
        "restore_best": "val_loss", "early_stopping": "val_loss,~<,8",
    }  # fmt: skip
    settings = {"ranks": 3, "train": train} | CASES[case]
    whole = trained(tmp_path / "whole", small_store, **settings)
    parts = trained(tmp_path / "parts", small_store, calls=(15, 30), **settings)
    assert parts.paths.model.read_bytes() == whole.paths.model.read_bytes()
    assert history_of(parts) == history_of(whole)
    assert validations(parts.folder) == validations(whole.folder)
    assert validations(parts.folder)[0]["step"] == "0"


def validations(folder):
    with (folder / "validations.csv").open() as file:
        return [
            {key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)
        ]


def test_a_run_that_ends_within_an_epoch_is_whole(tmp_path):
    train = {"epochs": 30, "batch_size": 8, "validate_every": 20, "target": "val_acc,>,0.5"}
    run = training_here(tmp_path, train=train)
    run.finish()
    table = validations(run.job)
    assert float(table[-1]["val_accuracy"]) > 0.5
    assert all(int(row["step"]) % 20 == 0 for row in table)
    assert run.rows[-1]["step"] == int(table[-1]["step"])
    verified = nnlo("verify", str(run.job), folder=tmp_path)
    assert "repeated steps: 0\n" in verified.stdout
    assert verified.returncode in (0, None)
