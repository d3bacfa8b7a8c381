"""Whether one candidate is worse than another on the same folds, or only unlucky."""

import math
from functools import lru_cache
from statistics import fmean


@lru_cache(maxsize=10_000)
def p_value(differences: tuple[float, ...], folds: int) -> float:
    """Return how likely a mean difference so large is by chance: the corrected paired t-test, one-sided.

    differences: two or more, positive where the candidate is worse; folds: k. The folds' training sets overlap, so
    that a plain t-test is too sure; the variance of the mean is (1/n + 1/(k-1)) s^2 instead of s^2/n (Nadeau and
    Bengio 2003, section 3; n_test/n_train = 1/(k-1)). Wilcoxon's signed ranks cannot fall below 1/2^n.
    """
    count, mean = len(differences), fmean(differences)
    if max(differences) == min(differences):
        return 0.0 if mean > 0 else 1.0
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (count - 1))
    from scipy.special import stdtr  # a tenth of a second, for those who prune

    return float(stdtr(count - 1, -mean / (spread * math.sqrt(1 / count + 1 / (folds - 1)))))
