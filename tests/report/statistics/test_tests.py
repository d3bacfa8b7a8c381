"""The statistical tests agree with SciPy, with formulas by hand and with published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nnlo_lib.report.statistics.significance import (
    PairedTest,
    holm,
    more_seeds,
    paired_test,
    sample_test,
)


def test_equal_steps_of_an_accuracy_have_a_variation():
    # The rounding of two accuracies has the standard deviation 0.01 sqrt(2/12).
    found = paired_test([0.02] * 3, step=0.01)
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.02 / (0.01 * math.sqrt(2 / 12 / 3)), 2))
    assert math.isnan(paired_test([0.02] * 3).p_value)


def test_no_difference_at_all():
    assert paired_test([0.0, 0.0, 0.0]) == PairedTest(0.0, 0.0, 0.0, 1.0, 3, 0.0)


@pytest.mark.parametrize("differences", [[0.5], [0.4, 0.6]])
def test_fewer_than_three_pairs_have_no_interval(differences):
    found = paired_test(differences)
    assert (found.difference, found.pairs) == (0.5, len(differences))
    assert math.isnan(found.p_value)
    assert math.isnan(found.low)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(values):
    """Oracle: Holm's procedure word by word, without adjusted p-values."""
    rejected, order = set(), sorted(range(len(values)), key=values.__getitem__)
    for place, index in enumerate(order):
        if values[index] * (len(values) - place) > 0.05:
            break
        rejected.add(index)
    assert {index for index, value in enumerate(holm(values)) if value <= 0.05} == rejected


def test_mcnemar_as_published():
    # Approval of a prime minister (Agresti 1990, p. 350): 794 and 570 unchanged, 150 and 86 changed.
    first = np.array([1] * 794 + [1] * 150 + [0] * 86 + [0] * 570, float)
    second = np.array([1] * 794 + [0] * 150 + [1] * 86 + [0] * 570, float)
    found = sample_test(first, second)
    assert found.p_value == pytest.approx(3.716e-05, rel=1e-3)  # R: exact2x2::mcnemar.exact
    assert found.difference == pytest.approx((944 - 880) / 1600)
    assert found.low < found.difference < found.high
    assert found.low > 0


def test_bootstrap_interval_is_near_that_of_the_normal_distribution():
    rng = np.random.default_rng(5)
    first = rng.exponential(1.0, 2000)
    second = first + rng.normal(0.05, 0.5, 2000)
    found, error = sample_test(first, second), np.std(first - second, ddof=1) / math.sqrt(2000)
    mean = float(np.mean(first - second))
    assert (found.low, found.high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=error / 4)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(mean) / error), abs=0.02)


def test_a_clear_difference_is_found_among_many_runs_and_few_samples_are_not_tested():
    """With 66 pairs of runs, Holm's correction demands a p-value below 0.001."""
    first = np.random.default_rng(0).exponential(size=500)
    assert sample_test(first, first + np.linspace(0.5, 1.5, 500)).p_value < 1e-6
    assert math.isnan(sample_test(np.arange(8.0), np.arange(8.0) ** 2).p_value)


def test_equal_models_do_not_differ_and_a_value_that_is_not_finite_prevents_the_test():
    assert sample_test(np.ones(50), np.ones(50)).p_value == 1.0
    assert math.isnan(sample_test(np.array([1.0, np.nan]), np.array([0.5, 0.5])).p_value)


def test_more_seeds():
    # R: power.t.test(power = .8, delta = 1, sd = 1, type = "paired") needs 9.94 pairs.
    assert more_seeds(PairedTest(1.0, -1, 3, 0.2, 4, 1.0), 1) == 6
    assert more_seeds(PairedTest(1.0, -1, 3, 0.2, 4, 1.0), 6) > 6
    assert more_seeds(PairedTest(0.001, -1, 3, 0.2, 4, 1.0), 1) is None
    assert more_seeds(PairedTest(0.0, -1, 3, 0.2, 4, 1.0), 1) is None
    assert more_seeds(PairedTest(1.0, -1, 3, 0.2, 3, 1.0), 1) is None
