"""Objective values of folds and trials equal values computed by hand."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.objective import fold_value, lowest, mean_and_error, running_average
from nnlo_lib.search.study.trial import FoldTask, Result


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
def test_what_did_not_finish_is_worth_nothing(status: str) -> None:
    assert fold_value(ObjectiveConfig(), result(0.1, 0.2, status=status)) == math.inf


def test_a_metric_that_is_not_measured_is_told() -> None:
    with pytest.raises(
        UserError,
        match=r"trial 4 has no val_auc; its history has the columns epoch, val_loss, val_accuracy, sec",
    ):
        fold_value(ObjectiveConfig(metric="val_auc"), result(0.1))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.sampled_from(["minimize", "maximize"]))
def test_lowest_and_running_average(losses: list[float], direction: Any) -> None:
    objective, signed = (
        ObjectiveConfig(direction=direction),
        np.array(losses) * (1 if direction == "minimize" else -1),
    )
    assert lowest(objective, result(*losses)) == signed.min()
    assert running_average(objective, result(*losses)) == pytest.approx(signed.mean(), abs=1e-9)
    assert running_average(objective, result(*losses, math.nan)) == pytest.approx(signed.mean(), abs=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=10))
def test_mean_and_error(values: list[float]) -> None:
    expected = np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))
    assert mean_and_error(values) == pytest.approx(expected, abs=1e-9)


def test_no_error_of_one_fold_or_a_failure() -> None:
    assert mean_and_error([0.5]) == pytest.approx((0.5, math.nan), nan_ok=True)
    assert mean_and_error([0.5, math.inf]) == pytest.approx((math.inf, math.nan), nan_ok=True)
