"""Objective values of folds and trials equal values computed by hand."""

import math
from typing import Any

import pytest
from helpers.simulated_search import made_up, search

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.snapshot import StudySnapshot, fold_value
from nnlo_lib.search.study.study import reason_target_reached
from nnlo_lib.search.study.trial import FoldTask, Result
from nnlo_lib.search.study.trial_summary import summarize_trial


def result(*losses: float, status: Any = "finished") -> Result:
    rows = [
        {"epoch": e, "val_loss": each, "val_accuracy": 1 - each, "seconds": 10.0 * e}
        for e, each in enumerate(losses, 1)
    ]
    return Result(FoldTask(4, 0, len(losses)), status, tuple(rows))


@pytest.mark.parametrize(
    ("objective", "losses", "worth"),
    [
        ({}, [0.5, 0.25, 0.75], 0.25),
        ({"epoch": "last"}, [0.5, 0.25, 0.75], 0.75),
        ({"metric": "val_accuracy"}, [0.5, 0.25, 0.75], -0.75),
        ({"metric": "val_accuracy", "epoch": "last"}, [0.5, 0.25, 0.75], -0.25),
        ({"metric": "val_accuracy", "direction": "minimize"}, [0.5, 0.25, 0.75], 0.25),
        ({"direction": "maximize"}, [0.5, 0.25, 0.75], -0.75),
        ({}, [0.5, math.nan, math.inf], 0.5),
        ({"epoch": "last"}, [0.5, math.nan], math.inf),
        ({}, [math.nan, math.nan], math.inf),
        ({}, [], math.inf),
        ({"epoch": "last"}, [], math.inf),
        ({"max_seconds": 20}, [0.5, 0.25], 0.25),
        ({"max_seconds": 19}, [0.5, 0.25], math.inf),
        ({"max_seconds": 19}, [], math.inf),
        ({"direction": "maximize"}, [-math.inf, 1.0], -1.0),
    ],
)
def test_value(objective: Any, losses: list[float], worth: float) -> None:
    assert fold_value(ObjectiveConfig(**objective), result(*losses)) == worth


@pytest.mark.parametrize("status", ["failed", "unwanted"])
def test_an_unfinished_fold_has_no_value(status: str) -> None:
    assert fold_value(ObjectiveConfig(), result(0.1, 0.2, status=status)) == math.inf


def test_a_metric_that_is_not_measured_is_named() -> None:
    message = r"trial 4 has no val_auc; its history has the columns epoch, val_loss, val_accuracy, sec"
    with pytest.raises(UserError, match=message):
        fold_value(ObjectiveConfig(metric="val_auc"), result(0.1))


def slow_at_the_top(**objective: Any) -> StudySnapshot:
    """Return a study whose best trial, 0, is within 5 s at 3 epochs and exceeds them at 9; a row takes 1 s per epoch."""
    wanted = search(objective={"max_seconds": 5, **objective}, fidelity={"name": "asha", "first": 3})
    return made_up(wanted, {(0, 3): [0.1], (0, 9): [0.05], (1, 3): [0.3], (2, 3): [0.2]})


@pytest.mark.parametrize("epoch", ["best", "last"])
def test_a_leader_keeps_the_value_of_the_rung_at_which_it_was_within_the_time_limit(epoch: str) -> None:
    known = slow_at_the_top(epoch=epoch)
    assert known.winner == (0, 3)
    assert known.best_trial() == 0
    assert known.final_value(0) == 0.1
    assert known.contenders == {0: 3, 1: 3, 2: 3}
    summary = summarize_trial(known, 0)
    assert (summary.state, summary.objective, summary.epochs) == ("stopped", 0.1, 3)
    assert summary.reason == "training took 9 s, more than search.objective.max_seconds (5)"
    # The retraining must not exceed the limit, either.
    assert max(summary.selected_epochs) <= 3


def test_the_target_counts_at_the_rung_within_the_time_limit() -> None:
    assert reason_target_reached(slow_at_the_top(target=0.15)) == "trial 0 has reached val_loss 0.1"


def test_a_trial_that_was_never_within_the_time_limit_does_not_count() -> None:
    wanted = search(objective={"max_seconds": 2})
    known = made_up(wanted, {(0, 3): [0.1], (0, 9): [0.1]})
    assert known.has_failed(0)
    assert known.best_trial() is None
    assert summarize_trial(known, 0).state == "unwanted"


def test_a_failure_at_a_higher_rung_is_no_time_limit() -> None:
    wanted = search(objective={"max_seconds": 5})
    known = made_up(wanted, {(0, 3): [0.1], (0, 9): [math.inf], (1, 3): [0.3]})
    assert known.best_trial() == 1
