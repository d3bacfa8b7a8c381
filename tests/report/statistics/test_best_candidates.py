"""Trials that are not called worse contain the truly best trial; clearly worse trials are called worse."""

import numpy as np
import pytest

from nnlo_lib.report.statistics.best_candidates import compare_with_best

EXPERIMENTS = 1000
# 1,000 searches with 5 % wrong statements give more than 70 with a probability below 0.3 %.
MAX_FALSE = 70


def searches(trials, folds, gap):
    """Yield the values (trials, folds) of searches; trial 0 is truly best by `gap` deviations, the others are equal.

    Differences of folds have the correlation 1/folds of Nadeau and Bengio's model.
    """
    rng = np.random.default_rng([trials, folds])
    for _ in range(EXPERIMENTS):
        own = np.sqrt(1 - 1 / folds) * rng.normal(size=(trials, folds))
        values = 5 * rng.normal(size=folds) + own + np.sqrt(1 / folds) * rng.normal(size=(trials, 1))
        values[0] += gap
        yield dict(enumerate(values))


def best(values):
    return max(values, key=lambda trial: values[trial].mean())


@pytest.mark.parametrize("folds", [2, 3, 5])
@pytest.mark.parametrize("trials", [2, 9])
def test_the_truly_best_trial_is_rarely_called_worse(trials, folds):
    wrong = sum(
        any(each.trial == 0 and each.is_worse for each in compare_with_best(best(values), values, True))
        for values in searches(trials, folds, gap=0.0)
    )
    assert wrong <= MAX_FALSE


def test_clearly_worse_trials_are_called_worse_in_both_directions():
    folds = {0: [0.90, 0.95, 0.91, 0.93], 1: [0.80, 0.86, 0.81, 0.82], 2: [0.91, 0.94, 0.90, 0.92]}
    found = {each.trial: each.is_worse for each in compare_with_best(0, folds, larger_is_better=True)}
    assert found == {1: True, 2: False}
    losses = {trial: [1 - value for value in values] for trial, values in folds.items()}
    assert {
        each.trial: each.is_worse for each in compare_with_best(0, losses, larger_is_better=False)
    } == found
