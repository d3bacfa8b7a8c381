"""Test whether a trial is worse than the leader of its rung, before all folds of the trial are trained."""

import math
from collections.abc import Sequence
from operator import sub
from statistics import fmean, variance

from nnlo_lib.search.comparison.fold_noise import FoldNoise, rounding_variance


def pruning_p_value(values: Sequence[float], leader: Sequence[float], trials: int, noise: FoldNoise) -> float:
    """Return the p-value of "the trial is as good as the leader", for all looks and the choice of the leader.

    The trial is tested after each fold from the second to the last but one, and the leader was chosen as the best
    of several trials: the probability of any false rejection is at most the sum of the probabilities of all looks
    and trials (Bonferroni).

    Args:
        values: values of the leading folds of the trial, two or more; smaller is better.
        leader: values of all folds of the leader.
        trials: number of trials from which the leader was chosen.
        noise: noise of the trials of the rung.
    """
    looks = max(1, len(leader) - 2)
    return min(1.0, trials * looks * paired_p_value(values, leader, noise))


def paired_p_value(values: Sequence[float], leader: Sequence[float], noise: FoldNoise) -> float:
    """Return the p-value of the mean difference of two given trials: corrected paired t-test, one-sided.

    The training sets of the folds overlap, so that a plain t-test is overconfident. The variance of the mean
    is (1/n + 1/(k-1)) s^2 instead of s^2/n (Nadeau and Bengio 2003, section 3; n_test/n_train = 1/(k-1)).
    The p-value of Wilcoxon's signed-rank test cannot fall below 1/2^n.

    Args:
        values: values of the leading folds of the trial, two or more; smaller is better.
        leader: values of all folds of the leader.
        noise: noise of the trials of the rung.
    """
    differences = list(map(sub, values, leader))
    spread, dof = _variance(differences, values, leader, noise)
    # Equal differences are no evidence: rounded metrics give them by chance.
    if spread <= rounding_variance([*values, *leader]):
        return 1.0
    from scipy.special import stdtr  # imported here because it takes 0.1 s and only pruning needs it

    error = math.sqrt(spread * (1 / len(values) + 1 / (len(leader) - 1)))
    return float(stdtr(dof, -fmean(differences) / error))


def _variance(
    differences: Sequence[float], values: Sequence[float], leader: Sequence[float], noise: FoldNoise
) -> tuple[float, float]:
    """Return the variance of the differences between folds, and its degrees of freedom.

    Args:
        differences: differences by fold.
        values: values of the trial.
        leader: values of the leader.
        noise: noise of the trials of the rung; if it is unknown, only the differences count.
    """
    own = variance(differences)
    if not noise.dof:
        return own, len(differences) - 1
    parts = [noise.moderated_variance(each) for each in (values, leader)]
    both = sum(part for part, _ in parts)
    # Satterthwaite (1946).
    dof = both**2 / sum(part**2 / freedom for part, freedom in parts)
    # A trial with more noise than all others must not be tested with the noise of the others.
    return max(both, own), dof
