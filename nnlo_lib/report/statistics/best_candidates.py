"""Comparison of the best trial of a search with the others: which trials may be as good?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnlo_lib.report.statistics.paired_test import ERROR_RATE, PairedTest, paired_test


@dataclass(frozen=True)
class TrialComparison:
    """A trial compared with the best one, by paired differences of the same folds.

    Attributes:
        trial: number of the trial.
        test: test of the mean of the trial minus the mean of the best trial.
        is_worse: whether the trial is worse than the best one, at an error rate of ERROR_RATE over all trials.
    """

    trial: int
    test: PairedTest
    is_worse: bool


def compare_with_best(
    best: int, folds: Mapping[int, Sequence[float]], larger_is_better: bool, step: float = 0.0
) -> list[TrialComparison]:
    """Return the comparison of each other trial with the best one.

    The trials that are not worse contain the truly best trial with a probability of at least 95 % (multiple
    comparisons with the best, Hsu 1984), although the data choose the best trial: the truly best trial is called
    worse only if one of its `len(folds) - 1` one-sided tests is wrong, each at the level ERROR_RATE divided by their
    number (Bonferroni).

    Args:
        best: number of the trial with the best mean.
        folds: values of each trial, in the same order of folds; all trials have the same folds.
        larger_is_better: direction of the objective.
        step: distance between neighboring values; see paired_test.
    """
    count = len(folds[best])
    overlap = 1 / (count - 1) if count > 1 else 0.0
    tests = {
        trial: paired_test([own - top for own, top in zip(values, folds[best], strict=True)], overlap, step)
        for trial, values in folds.items()
        if trial != best
    }
    level = ERROR_RATE / max(len(tests), 1)
    return [
        TrialComparison(trial, test, _one_sided(test, larger_is_better) <= level)
        for trial, test in tests.items()
    ]


def _one_sided(test: PairedTest, larger_is_better: bool) -> float:
    is_worse = (test.difference < 0) == larger_is_better
    return test.p_value / 2 if is_worse else 1 - test.p_value / 2
