"""Runs are compared by pairs of jobs; each rule that decides what is a pair is checked by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from nnlo_lib.report.statistics.comparison_text import difference_text
from nnlo_lib.report.statistics.run_comparison import (
    ComparedMetric,
    best_run,
    compare_runs,
    quality_metrics,
    ranking_metric,
)
from nnlo_lib.report.statistics.significance import PairedTest, without_verdict

ACCURACY = ComparedMetric("accuracy", True)


def summary(values, **columns):
    """Return a summary of runs with values per seed."""
    rows = [
        {"run": run, "seed": seed, "fold": pd.NA, "accuracy": value}
        for run, seeds in values.items()
        for seed, value in enumerate(seeds, 1)
    ]
    known = {
        "loss": 1.0, "problem": "classification", "loss_function": "ce", "data": "d", "split": "test", "samples": 10_000,
        "training_samples": 50_000, "validation_samples": 5_000, "seconds": 1.0, "samples_per_second": 1.0,
        "weights_chosen_by": None,
    }  # fmt: skip
    return pd.DataFrame(rows).assign(**known | columns).astype({"fold": "Int64"})


def compare(table, metric=ACCURACY, samples=None):
    return compare_runs(table, metric, lambda key, column: (samples or {}).get(key[0]))


def test_shared_seed_effects_cancel():
    """Seeds differ by 5 points, runs by 1: the unpaired deviations hide what every single pair shows."""
    effects = np.array([0.0, 0.05, 0.02])
    table = summary({"good": 0.91 + effects, "poor": 0.90 + effects + [0.0002, -0.0001, 0.0001]})
    [found] = compare(table)
    assert found.better == "good"
    assert found.test.difference == pytest.approx(0.01, abs=2e-4)


def test_values_that_are_not_finite_are_left_out_and_counted():
    [found] = compare(summary({"a": [0.9, math.nan, math.inf, 0.92], "b": [0.8, 0.8, 0.8, 0.81]}))
    assert (found.test.pairs, found.left_out) == (2, 2)


def test_runs_with_other_test_data_are_not_paired():
    table = summary({"a": [0.9, 0.91], "b": [0.8, 0.82]})
    table["data"] = ["d", "d", "other", "other"]
    [found] = compare(table)
    assert found.test.pairs == 0
    assert math.isnan(found.p_holm)


def test_a_lost_seed_creates_no_verdict():
    """Oracle of an audit: of two seeds, one diverged; the other was compared by its samples, as if it were the only one."""
    table = summary({"a": [1.0, 1.0], "b": [0.5, math.nan]}, loss=[0.1, 0.2, 0.3, math.nan])
    [found] = compare(table, samples={"a": np.ones(300), "b": np.r_[np.zeros(150), np.ones(150)]})
    assert found.better is None
    assert (found.test.pairs, found.left_out) == (1, 1)


def test_equal_accuracies_with_other_losses_are_different_seeds():
    """Three seeds with the accuracies 1 and 0.8 of 30 samples are three observations, not one."""
    table = summary({"a": [1.0] * 3, "b": [0.8] * 3}, samples=30, loss=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    [found] = compare(table, samples={"a": np.ones(30), "b": np.r_[np.zeros(6), np.ones(24)]})
    assert (found.method, found.test.pairs) == ("seeds", 3)
    # 0.2 with the variation of the rounding alone.
    error = math.sqrt(2 / 12) / 30 / math.sqrt(3)
    assert found.test.p_value == pytest.approx(2 * stats.t.sf(0.2 / error, 2))


def test_two_seeds_have_their_differences_and_no_test():
    """A t-test of +0.3 and +15.7 points would give an interval of [-90, 106] points."""
    [found] = compare(summary({"a": [0.903, 0.957], "b": [0.9, 0.8]}, loss=[0.1, 0.2, 0.3, 0.4]))
    assert (found.test.pairs, found.better, found.more_seeds) == (2, None, None)
    assert found.differences == pytest.approx((0.003, 0.157))
    assert found.test.difference == pytest.approx(0.08)
    assert all(map(math.isnan, (found.test.low, found.test.high, found.test.p_value, found.p_holm)))
    assert found.untested == "a test needs 3 seeds"


@pytest.mark.parametrize(
    ("metric", "bound"), [("accuracy", 1), ("val_top5_accuracy", 1), ("roc_auc", 1), ("loss", math.inf)]
)
def test_an_interval_is_within_what_is_possible(metric, bound):
    ratio = ComparedMetric("seconds", False, is_ratio=True)
    assert (ComparedMetric(metric, None).bound, ratio.bound) == (bound, math.inf)
    wide = PairedTest(0.5, -0.4, 1.4, 0.3, 3, 0.6)
    assert wide.within(bound)[:3] == (0.5, -0.4, min(1.4, bound))
    assert "1.4" in difference_text(ComparedMetric("loss", False), wide)
    assert difference_text(ACCURACY, wide, -1).startswith("−50 [−100, 40]")
    assert difference_text(ACCURACY, without_verdict(0.5, 2)).startswith("+50\u00a0")


def test_seeds_without_effect_are_one_seed():
    """Three copies of one result are no three observations."""
    [found] = compare(summary({"a": [0.9] * 3, "b": [0.8] * 3}))
    assert math.isnan(found.p_holm)
    assert found.better is None


def test_the_best_run_is_better_than_each_other_run():
    clear = summary({"a": [0.9, 0.91, 0.9], "b": [0.7, 0.72, 0.7], "c": [0.5, 0.52, 0.5]})
    assert best_run(compare(clear)) == "a"
    near = summary({"a": [0.9, 0.91, 0.9], "b": [0.9, 0.9, 0.91], "c": [0.5, 0.52, 0.5]})
    assert best_run(compare(near)) is None


def test_losses_of_different_functions_are_not_compared():
    table = summary({"a": [0.9], "b": [0.8]})
    assert [metric.column for metric in quality_metrics(table)] == ["accuracy", "loss"]
    table["loss_function"] = ["ce", "mse"]
    assert [metric.column for metric in quality_metrics(table)] == ["accuracy"]


def test_the_direction_of_a_users_metric_is_unknown():
    table = summary({"a": [0.3, 0.31, 0.3], "b": [0.1, 0.12, 0.1]}, gain=0.0).drop(columns="accuracy")
    table = table.assign(accuracy=math.nan, gain=[0.3, 0.31, 0.3, 0.1, 0.12, 0.1])
    metric = quality_metrics(table)[0]
    assert (metric.column, metric.highest) == ("gain", None)
    [found] = compare(table, metric)
    assert found.differs
    assert found.better is None
    assert ranking_metric(table).column == "loss"
