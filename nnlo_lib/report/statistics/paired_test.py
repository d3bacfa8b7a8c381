"""Test of a mean difference between paired measurements, such as two runs with the same seeds and folds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
ERROR_RATE = 1 - CONFIDENCE  # accepted probability of a false verdict
# A step of 1/samples in each of two accuracies adds a rounding error of this standard deviation, in steps.
ROUNDING_STD = math.sqrt(2 / 12)


@dataclass(frozen=True)
class PairedTest:
    """A mean difference with its confidence interval.

    Attributes:
        difference: mean of the differences; NaN without pairs.
        low: lower end of the 95 % interval of the mean difference; NaN if unknown.
        high: upper end of the interval.
        p_value: two-sided p-value of the hypothesis that the mean difference is 0; NaN if unknown.
        pairs: number of differences.
        std: sample standard deviation of the differences; NaN if unknown.
    """

    difference: float
    low: float
    high: float
    p_value: float
    pairs: int
    std: float = math.nan


def paired_test(differences: Sequence[float], overlap: float = 0.0, step: float = 0.0) -> PairedTest:
    """Return Student's t-test of paired differences, corrected for overlapping training sets.

    The variance of the mean of n differences is (1/n + overlap) s^2 (Nadeau and Bengio 2003, section 3.3;
    Bouckaert and Frank 2004 for repeated folds), with s the standard deviation of the differences.

    Args:
        differences: finite differences, one per seed and fold.
        overlap: validation samples divided by training samples if the pairs have different, overlapping
            training sets; 0 if all pairs have the same training data.
        step: distance between neighboring values of the metric, 1/samples for an accuracy. Equal differences
            of rounded values would otherwise look like differences without variation.
    """
    pairs = len(differences)
    mean = float(np.mean(differences)) if pairs else math.nan
    if pairs < 2:
        return PairedTest(mean, math.nan, math.nan, math.nan, pairs)
    std = max(float(np.std(differences, ddof=1)), step * ROUNDING_STD)
    error = std * math.sqrt(1 / pairs + overlap)
    # Rounding errors of equal differences are no variation.
    if error <= 1e-12 * abs(mean):
        known = math.nan if mean else 0.0
        return PairedTest(mean, known, known, math.nan if mean else 1.0, pairs, std)
    width = error * stats.t.ppf((1 + CONFIDENCE) / 2, pairs - 1)
    p_value = 2 * float(stats.t.sf(abs(mean) / error, pairs - 1))
    return PairedTest(mean, mean - width, mean + width, p_value, pairs, std)
