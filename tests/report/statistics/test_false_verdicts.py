"""Equal runs are called different in at most 5 % of experiments; real differences are found more often with more seeds.

benchmarks/false_verdicts.py counts false verdicts of models that are trained, as `nnlo run` trains them.
"""

from itertools import combinations

import numpy as np
import pytest

from nnlo_lib.report.statistics.significance import holm, paired_test

EXPERIMENTS = 500
# 500 experiments with 5 % false verdicts give more than 39 with a probability below 0.3 %.
MAX_FALSE = 39


def verdicts(seeds, *, runs=2, folds=1, samples=0, gain=0.0):
    """Return the number of experiments in which any two runs are called different.

    Args:
        seeds: seeds of each run; their effect is shared by all runs.
        runs: number of runs; the first is better by `gain` deviations.
        folds: folds of each seed; folds have the correlation 1/folds of Nadeau and Bengio's model.
        samples: test samples to which an accuracy is rounded; 0: not rounded.
        gain: difference of the first run in deviations.
    """
    rng = np.random.default_rng([7, seeds, runs, folds, samples])
    of_run, own = (np.sqrt(1 / folds), np.sqrt(1 - 1 / folds)) if folds > 1 else (0.0, 1.0)
    shape = (EXPERIMENTS, runs, seeds, folds)
    values = 3 * rng.normal(size=(EXPERIMENTS, 1, seeds, folds)) + own * rng.normal(size=shape)
    values = values + of_run * rng.normal(size=(EXPERIMENTS, runs, 1, 1))
    values[:, 0] += gain
    values = 0.8 + 0.01 * values
    if samples:
        values = np.round(values * samples) / samples
    step, overlap = 1 / samples if samples else 0.0, 1 / (folds - 1) if folds > 1 else 0.0
    return sum(any(p <= 0.05 for p in _corrected(jobs, overlap, step)) for jobs in values)


def _corrected(jobs, overlap, step):
    pairs = combinations(jobs, 2)
    return holm([paired_test((one - two).ravel(), overlap, step).p_value for one, two in pairs])


CASES = {
    "2 seeds": {"seeds": 2}, "10 seeds": {"seeds": 10}, "coarse accuracies": {"seeds": 2, "samples": 36},
    "3 seeds, coarse": {"seeds": 3, "samples": 36}, "5 seeds, rounded": {"seeds": 5, "samples": 360},
    "four runs": {"seeds": 2, "runs": 4, "samples": 360}, "four runs, 5 seeds": {"seeds": 5, "runs": 4, "samples": 360},
    "2 folds": {"seeds": 1, "folds": 2}, "3 folds": {"seeds": 1, "folds": 3}, "10 folds": {"seeds": 1, "folds": 10},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_equal_runs_are_rarely_called_different(case):
    assert verdicts(**case) <= MAX_FALSE


def test_more_seeds_find_more():
    found = [verdicts(seeds, gain=2.0) for seeds in (2, 3, 5, 10)]
    assert found == sorted(found)
    assert found[0] < 0.3 * EXPERIMENTS
    assert found[-1] > 0.95 * EXPERIMENTS
