"""The test that prunes: equal trials are pruned no more often than the level, and clearly worse ones are pruned."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nnlo_lib.search.fold_statistics import MIN_TRIALS, FoldNoise, paired_p_value, pruning_p_value

LEVEL, SEARCHES = 0.05, 1000


def trials(source: np.random.Generator, count: int, k: int, rounded: float) -> np.ndarray:
    """Return values of equally good trials, (count, k), with the correlation 1/k of folds that share data.

    `rounded` is the resolution of the values in standard deviations; 0: none.
    """
    own = math.sqrt(1 - 1 / k) * source.normal(size=(count, k))
    common = math.sqrt(1 / k) * source.normal(size=(count, 1))
    values = own + common
    return 2 * source.normal(size=k).round() + (np.round(values / rounded) * rounded if rounded else values)


def is_pruned(values: np.ndarray, candidate: np.ndarray) -> bool:
    """Return True if the test prunes a trial, after any fold, in favor of the best of other trials."""
    k, noise = len(candidate), FoldNoise.of(values.tolist())
    best = values[values.mean(axis=1).argmin()].tolist()
    p_values = (pruning_p_value(candidate[:n].tolist(), best, len(values), noise) for n in range(2, k))
    return any(p_value < LEVEL for p_value in p_values)


DAILY = [(3, 1, 0.0), (5, MIN_TRIALS, 1.0), (10, 30, 0.0)]  # the other cases are exhaustive
CASES = [
    pytest.param(*case, marks=[] if case in DAILY else pytest.mark.exhaustive)
    for case in itertools.product([3, 5, 10], [1, MIN_TRIALS, 30], [0.0, 1.0])
]


@pytest.mark.parametrize(("k", "others", "rounded"), CASES)
def test_equal_trials_are_pruned_no_more_often_than_the_level(k: int, others: int, rounded: float) -> None:
    source = np.random.default_rng([k, others])
    wrong = 0
    for _ in range(SEARCHES):
        every = trials(source, others + 1, k, rounded)
        wrong += is_pruned(every[:-1], every[-1])
    # Fixed seeds: the result is the same on each machine. The margin is three standard errors.
    assert wrong / SEARCHES <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / SEARCHES)


@pytest.mark.parametrize("k", [3, 5, 10])
def test_trials_that_are_clearly_worse_are_pruned(k: int) -> None:
    """A trial that is worse by six standard deviations of a fold."""
    source, found = np.random.default_rng(k), 0
    for _ in range(100):
        every = trials(source, 31, k, 0.0)
        found += is_pruned(every[:-1], every[-1] + 6)
    assert found > 80


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=9), st.integers(3, 10))
def test_p_value_of_few_trials_is_scipys_paired_test_with_the_variance_of_nadeau_and_bengio(
    tenths: list[int], folds: int
) -> None:
    differences = np.array(tenths[: folds - 1]) / 10
    found = paired_p_value(differences.tolist(), [0.0] * folds, FoldNoise())
    if np.ptp(differences) == 0:
        assert found == 1, "equal differences are no evidence"
        return
    n = len(differences)
    plain = stats.ttest_1samp(differences, 0).statistic
    corrected = plain * math.sqrt((1 / n) / (1 / n + 1 / (folds - 1)))
    assert found == pytest.approx(stats.t(n - 1).sf(corrected), rel=1e-9)


def test_noise_of_trials_with_equal_variances_is_pooled() -> None:
    """The variance is known well from many trials, whatever the folds of one trial say."""
    source = np.random.default_rng(0)
    noise = FoldNoise.of((3 * source.normal(size=(200, 5)) + source.normal(size=5)).tolist())
    assert noise.dof > 40
    assert noise.variance == pytest.approx(9, rel=0.15)
    assert noise.moderated_variance([1.0, 1.0])[0] == pytest.approx(9, rel=0.2)


def test_noise_of_trials_with_different_variances_is_that_of_each_trial() -> None:
    source = np.random.default_rng(0)
    scales = np.exp(2 * source.normal(size=(200, 1)))
    noise = FoldNoise.of((scales * source.normal(size=(200, 5))).tolist())
    assert noise.dof < 2


def test_without_variation_nothing_is_known() -> None:
    assert FoldNoise.of([[0.5] * 5] * 10).dof == 0
    assert pruning_p_value([0.6, 0.6], [0.5] * 5, 10, FoldNoise.of([[0.5] * 5] * 10)) == 1
