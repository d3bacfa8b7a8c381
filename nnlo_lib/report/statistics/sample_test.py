"""Test of the difference between two trained models on the same test samples."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nnlo_lib.report.statistics.paired_test import CONFIDENCE, PairedTest

Values = NDArray[np.floating]

MIN_SAMPLES = 30  # samples; with fewer, the bootstrap of skewed values is wrong too often
RESAMPLES = 2000
RESAMPLED_VALUES = 20_000_000  # values of the resamples that are in memory at once


def sample_test(values: Values, others: Values) -> PairedTest:
    """Return the test of two models by their values for each test sample.

    Values of 0 and 1 (correct or not) are compared by McNemar's exact test, others by a studentized bootstrap of
    the samples. The result holds for these two trained models, not for other seeds.

    Args:
        values: a metric of the first model, (samples,).
        others: the same metric of the second model for the same samples, (samples,).
    """
    differences = values.astype(float) - others.astype(float)
    if len(differences) < 2 or not np.isfinite(differences).all():
        return PairedTest(math.nan, math.nan, math.nan, math.nan, len(differences))
    if not differences.any():
        return PairedTest(0.0, 0.0, 0.0, 1.0, len(differences), 0.0)
    if np.isin(differences, (-1, 0, 1)).all():
        return _mcnemar(differences)
    if len(differences) < MIN_SAMPLES:
        return PairedTest(float(differences.mean()), math.nan, math.nan, math.nan, len(differences))
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
    resampled = _studentized_resamples(differences)
    low, high = mean - error * np.quantile(resampled, [(1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2])
    beyond = int(np.sum(abs(resampled) >= abs(mean) / error)) if error else RESAMPLES
    # No resample is beyond: the p-value is below what resamples can tell, and Student's is used if it is smaller.
    smallest = stats.ttest_1samp(differences, 0).pvalue if not beyond else 1.0
    p_value = float(min((1 + beyond) / (RESAMPLES + 1), smallest))
    return PairedTest(mean, float(low), float(high), p_value, len(differences), std)


def _studentized_resamples(differences: Values) -> Values:
    """Return (mean of a resample - mean) / standard error of the resample, (RESAMPLES,); infinite without variation."""
    rng, samples = np.random.default_rng(0), len(differences)
    found = []
    for size in _batches(max(1, RESAMPLED_VALUES // samples)):
        picked = differences[rng.integers(0, samples, (size, samples))]
        errors = picked.std(axis=1, ddof=1) / math.sqrt(samples)
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append((picked.mean(axis=1) - differences.mean()) / errors)
    # Resamples of a single value have no error; the bound is far beyond each quantile.
    resampled: Values = np.nan_to_num(np.concatenate(found), nan=1e6, posinf=1e6, neginf=-1e6)
    return resampled


def _batches(largest: int) -> list[int]:
    full, rest = divmod(RESAMPLES, largest)
    return [largest] * full + [rest] * bool(rest)
