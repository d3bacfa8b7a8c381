"""Trials that are not called worse contain the truly best trial; clearly worse trials are called worse."""

import numpy as np
import pytest

from nnlo_lib.report.statistics.comparison_text import compare_with_best

EXPERIMENTS = 400
# 400 searches with 5 % wrong statements give more than 33 with a probability below 0.3 %.
MAX_FALSE = 33


def searches(trials, folds):
    """Yield the values (trials, folds) of searches in which all trials are equally good.

    Differences of folds have the correlation 1/folds of Nadeau and Bengio's model.
    """
    rng = np.random.default_rng([trials, folds])
    for _ in range(EXPERIMENTS):
        own = np.sqrt(1 - 1 / folds) * rng.normal(size=(trials, folds))
        values = 5 * rng.normal(size=folds) + own + np.sqrt(1 / folds) * rng.normal(size=(trials, 1))
        yield dict(enumerate(values))


@pytest.mark.parametrize(("trials", "folds"), [(2, 2), (2, 5), (9, 2), (9, 3)])
def test_a_trial_that_is_as_good_as_the_best_is_rarely_called_worse(trials, folds):
    wrong = 0
    for values in searches(trials, folds):
        best = max(values, key=lambda trial: values[trial].mean())
        wrong += any(each.trial == 0 and each.is_worse for each in compare_with_best(best, values, True))
    assert wrong <= MAX_FALSE


def test_clearly_worse_trials_are_called_worse_in_both_directions():
    folds = {0: [0.90, 0.95, 0.91, 0.93], 1: [0.80, 0.86, 0.81, 0.82], 2: [0.91, 0.94, 0.90, 0.92]}
    losses = {trial: [1 - value for value in values] for trial, values in folds.items()}
    for values, larger in ((folds, True), (losses, False)):
        found = {each.trial: each.is_worse for each in compare_with_best(0, values, larger_is_better=larger)}
        assert found == {1: True, 2: False}
