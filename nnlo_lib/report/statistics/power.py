"""Number of seeds that a comparison needs."""

import math

from scipy import stats

from nnlo_lib.report.statistics.paired_test import ERROR_RATE, PairedTest

POWER = 0.8  # probability of a verdict that `more_seeds` plans for
MAX_SEEDS = 1000


def more_seeds(test: PairedTest, comparisons: int) -> int | None:
    """Return how many seeds are needed in addition for a verdict with probability POWER.

    The calculation takes the observed mean and standard deviation of the differences as true, and demands the
    significance level that Holm's method demands of the first of `comparisons` tests.

    Args:
        test: paired test over seeds.
        comparisons: number of tests that are corrected together.

    Returns:
        At least 1; None if more than MAX_SEEDS seeds are needed or the variation is unknown.
    """
    if test.pairs < 2 or not test.std > 0 or not test.difference:
        return None
    effect, level = abs(test.difference) / test.std, ERROR_RATE / comparisons
    if power(effect, MAX_SEEDS, level) < POWER:
        return None
    low, high = 2, MAX_SEEDS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, level) >= POWER else (middle + 1, high)
    return max(1, low - test.pairs)


def power(effect: float, pairs: int, level: float) -> float:
    """Return the probability that a two-sided paired t-test rejects.

    Args:
        effect: mean of the differences divided by their standard deviation.
        pairs: number of differences.
        level: significance level.
    """
    bound, shift = stats.t.ppf(1 - level / 2, pairs - 1), effect * math.sqrt(pairs)
    # Far from 0, the series of the noncentral distribution does not converge, and the normal one is exact enough.
    if shift > 30:
        return float(stats.norm.sf(bound - shift))
    return float(stats.nct.sf(bound, pairs - 1, shift))
