"""Tests of paired differences, by SciPy's tests and by formulas of the literature."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import integrate, stats

ROUNDING = math.sqrt(
    2 / 12
)  # standard deviation of a difference of two rounded values, in units of the last digit
LEVEL, POWER = 0.05, 0.8
Numbers = np.ndarray


class Tested(NamedTuple):
    """Mean difference, its 95 % interval, its p-value, and the number and deviation of the differences."""

    mean: float
    low: float
    high: float
    p: float
    pairs: int
    deviation: float = math.nan


def single(difference: float, pairs: int = 1) -> Tested:
    """Return a difference that cannot be tested."""
    return Tested(difference, math.nan, math.nan, math.nan, pairs)


def t_test(ours: Numbers, theirs: Numbers, overlap: float, step: float) -> Tested:
    """Return the paired t-test; with Nadeau and Bengio's correction, and the variation of values rounded to `step`."""
    differences = ours - theirs
    count, deviation = len(differences), float(differences.std(ddof=1))
    if overlap == 0 and deviation > step * ROUNDING and deviation > 1e-9 * abs(differences.mean()):
        found = stats.ttest_rel(ours, theirs)
        ends = found.confidence_interval(1 - LEVEL)
        return Tested(
            float(differences.mean()),
            float(ends.low),
            float(ends.high),
            float(found.pvalue),
            count,
            deviation,
        )
    deviation = max(deviation, step * ROUNDING)
    error, mean = deviation * math.sqrt(1 / count + overlap), float(differences.mean())
    if error <= 1e-12 * abs(mean):
        return single(mean, count)
    width = error * float(stats.t(count - 1).isf(LEVEL / 2))
    p = 2 * float(stats.t(count - 1).cdf(-abs(mean) / error))
    return Tested(mean, mean - width, mean + width, p, count, deviation)


def mcnemar(ours: Numbers, theirs: Numbers) -> Tested:
    """Return McNemar's exact test of two models by their correct samples (1 correct, 0 wrong)."""
    first, second = int((ours > theirs).sum()), int((ours < theirs).sum())
    split, samples = first + second, len(ours)
    mean = (first - second) / samples
    if not split:
        return Tested(0.0, 0.0, 0.0, 1.0, samples, 0.0)
    p = min(1.0, 2 * float(stats.binom.cdf(min(first, second), split, 0.5)))
    # Agresti and Min: half a sample is added to each cell of the table of both models.
    shares = np.array([first + 0.5, second + 0.5]) / (samples + 2)
    middle = shares[0] - shares[1]
    error = math.sqrt((shares.sum() - middle**2) / (samples + 2))
    width = float(stats.norm.isf(LEVEL / 2)) * error
    return Tested(mean, middle - width, middle + width, p, samples)


def bootstrap(ours: Numbers, theirs: Numbers) -> Tested:
    """Return the studentized interval and p-value of the mean difference from 5000 resamples of the samples."""
    differences = ours.astype(float) - theirs.astype(float)
    random, count = np.random.default_rng(2026), len(differences)
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    error, found = deviation / math.sqrt(count), []
    for _ in range(5000):
        drawn = differences[random.integers(0, count, count)]
        found.append((drawn.mean() - mean) / (drawn.std(ddof=1) / math.sqrt(count)))
    low, high = mean - error * np.quantile(found, [1 - LEVEL / 2, LEVEL / 2])
    p = float(np.mean(np.abs(found) >= abs(mean) / error))
    return Tested(mean, float(low), float(high), p, count, deviation)


def holm(p_values: "list[float]") -> "list[float]":
    """Return Holm's corrected p-values; an unknown one stays unknown."""
    known = sorted((p, number) for number, p in enumerate(p_values) if not math.isnan(p))
    found, largest = list(p_values), 0.0
    for rank, (p, number) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        found[number] = largest
    return found


@cache
def power(effect: float, pairs: int, level: float) -> float:
    """Return the probability that a t-test of paired differences finds an effect of the right sign.

    The normal probability is integrated over the distribution of the estimated standard deviation.
    """
    freedom = pairs - 1
    bound, shift = float(stats.t(freedom).isf(level / 2)), effect * math.sqrt(pairs)
    ratio = stats.chi(freedom, scale=1 / math.sqrt(freedom))
    ends = float(ratio.ppf(1e-12)), float(ratio.isf(1e-12))
    points = [shift / bound] if ends[0] < shift / bound < ends[1] else None
    found, _ = integrate.quad(
        lambda s: stats.norm.sf(bound * s - shift) * ratio.pdf(s), *ends, points=points, limit=200
    )
    return float(found)
