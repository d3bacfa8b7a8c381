"""Tests of a mean difference: between paired trainings, and between two models on the same samples; correction and power."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
ERROR_RATE = 1 - CONFIDENCE  # accepted probability of a false verdict
POWER = 0.8  # probability of a verdict that `more_seeds` plans for
MIN_PAIRS = 3  # differences; two say nearly nothing about their variation, and need an interval beyond what is possible
MAX_SEEDS = 1000
MIN_SAMPLES = 30  # samples; with fewer, the bootstrap of skewed values is wrong too often
RESAMPLES = 2000
RESAMPLED_VALUES = 20_000_000  # values of the resamples that are in memory at once
# A step of 1/samples in each of two accuracies adds a rounding error of this standard deviation, in steps.
ROUNDING_STD = math.sqrt(2 / 12)
Values = NDArray[np.floating]


class PairedTest(NamedTuple):
    """A mean difference with its 95 % confidence interval and two-sided p-value; NaN: unknown.

    `std` is the sample standard deviation of the `pairs` differences.
    """

    difference: float
    low: float
    high: float
    p_value: float
    pairs: int
    std: float = math.nan

    def within(self, bound: float) -> "PairedTest":
        """Return the test with the part of its interval that is possible: differences of at most `bound`."""
        return self._replace(low=max(self.low, -bound), high=min(self.high, bound))


def without_verdict(difference: float, pairs: int, std: float = math.nan) -> PairedTest:
    """Return a mean difference without an interval and a p-value."""
    return PairedTest(difference, math.nan, math.nan, math.nan, pairs, std)


def paired_test(differences: Sequence[float], overlap: float = 0.0, step: float = 0.0) -> PairedTest:
    """Return Student's t-test of finite paired differences, corrected for overlapping training sets.

    The variance of the mean of n differences is (1/n + overlap) s^2 (Nadeau and Bengio 2003, section 3.3;
    Bouckaert and Frank 2004 for repeated folds), with s the standard deviation of the differences.

    Args:
        overlap: validation samples divided by training samples if the pairs have different, overlapping
            training sets; 0 if all pairs have the same training data.
        step: distance between neighboring values of the metric, 1/samples for an accuracy. Equal differences
            of rounded values would otherwise look like differences without variation.
    """
    pairs = len(differences)
    mean = float(np.mean(differences)) if pairs else math.nan
    if pairs < MIN_PAIRS:
        return without_verdict(mean, pairs)
    std = max(float(np.std(differences, ddof=1)), step * ROUNDING_STD)
    error = std * math.sqrt(1 / pairs + overlap)
    # Rounding errors of equal differences are no variation.
    if error <= 1e-12 * abs(mean):
        return without_verdict(mean, pairs, std) if mean else PairedTest(0.0, 0.0, 0.0, 1.0, pairs, std)
    width = error * stats.t.ppf((1 + CONFIDENCE) / 2, pairs - 1)
    p_value = 2 * float(stats.t.sf(abs(mean) / error, pairs - 1))
    return PairedTest(mean, mean - width, mean + width, p_value, pairs, std)


def sample_test(values: Values, others: Values) -> PairedTest:
    """Return the test of two models by their values for each test sample.

    Values of 0 and 1 (correct or not) are compared by McNemar's exact test, others by a studentized bootstrap of
    the samples. The result holds for these two trained models, not for other seeds.
    """
    differences = values.astype(float) - others.astype(float)
    samples = len(differences)
    if samples < 2 or not np.isfinite(differences).all():
        return without_verdict(math.nan, samples)
    if not differences.any():
        return PairedTest(0.0, 0.0, 0.0, 1.0, samples, 0.0)
    if np.isin(differences, (-1, 0, 1)).all():
        return _mcnemar(differences)
    if samples < MIN_SAMPLES:
        return without_verdict(float(differences.mean()), samples)
    return _bootstrap(differences)


def _mcnemar(differences: Values) -> PairedTest:
    """Return McNemar's exact test (McNemar 1947): a sign test of the samples on which the models disagree.

    The interval follows Agresti and Min (2005): Wald's interval after adding half a sample to each of the four
    combinations of correct and wrong answers.
    """
    samples, wins, losses = len(differences), int(np.sum(differences > 0)), int(np.sum(differences < 0))
    middle = (wins - losses) / (samples + 2)
    error = math.sqrt((wins + losses + 1) / (samples + 2) - middle**2) / math.sqrt(samples + 2)
    width = error * stats.norm.ppf((1 + CONFIDENCE) / 2)
    p_value = float(stats.binomtest(wins, wins + losses).pvalue)
    std = float(np.std(differences, ddof=1))
    return PairedTest(float(differences.mean()), middle - width, middle + width, p_value, samples, std)


def _bootstrap(differences: Values) -> PairedTest:
    """Return the studentized bootstrap of a mean (Efron and Tibshirani 1993, section 12.5)."""
    mean, std = float(differences.mean()), float(np.std(differences, ddof=1))
    error = std / math.sqrt(len(differences))
    # (Mean of a resample - mean) / standard error of the resample, (RESAMPLES,).
    rng, samples, found = np.random.default_rng(0), len(differences), []
    full, rest = divmod(RESAMPLES, largest := max(1, RESAMPLED_VALUES // samples))
    for size in [largest] * full + [rest] * bool(rest):
        picked = differences[rng.integers(0, samples, (size, samples))]
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append((picked.mean(axis=1) - mean) / (picked.std(axis=1, ddof=1) / math.sqrt(samples)))
    # Resamples of a single value have no error; the bound is far beyond each quantile.
    resampled = np.nan_to_num(np.concatenate(found), nan=1e6, posinf=1e6, neginf=-1e6)
    low, high = mean - error * np.quantile(resampled, [(1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2])
    beyond = int(np.sum(abs(resampled) >= abs(mean) / error)) if error else RESAMPLES
    # No resample is beyond: the p-value is below what resamples can tell, and Student's is used if it is smaller.
    smallest = stats.ttest_1samp(differences, 0).pvalue if not beyond else 1.0
    p_value = float(min((1 + beyond) / (RESAMPLES + 1), smallest))
    return PairedTest(mean, float(low), float(high), p_value, len(differences), std)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method; NaN (not tested) stays NaN and does not count.

    Rejecting the hypotheses whose adjusted p-value is at most a makes the probability of any false rejection at
    most a (Holm 1979).
    """
    p = np.asarray(p_values, dtype=float)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    p[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return [float(value) for value in p]


def more_seeds(test: PairedTest, comparisons: int) -> int | None:
    """Return how many seeds are needed in addition for a verdict with probability POWER.

    The calculation takes the observed mean and standard deviation of the differences as true, and demands the
    significance level that Holm's method demands of the first of `comparisons` tests. None: more than MAX_SEEDS seeds are
    needed, or the variation is unknown, as that of MIN_PAIRS seeds is.
    """
    if test.pairs <= MIN_PAIRS or not test.std > 0 or not test.difference:
        return None
    effect, seeds = abs(test.difference) / test.std, range(2, MAX_SEEDS + 1)
    place = bisect_left(seeds, POWER, key=lambda pairs: power(effect, pairs, ERROR_RATE / comparisons))
    return max(1, seeds[place] - test.pairs) if place < len(seeds) else None


def power(effect: float, pairs: int, level: float) -> float:
    """Return the probability that a two-sided paired t-test rejects; `effect`: mean / standard deviation of the differences."""
    bound, shift = stats.t.ppf(1 - level / 2, pairs - 1), effect * math.sqrt(pairs)
    # Far from 0, the series of the noncentral distribution does not converge, and the normal one is exact enough.
    if shift > 30:
        return float(stats.norm.sf(bound - shift))
    return float(stats.nct.sf(bound, pairs - 1, shift))
