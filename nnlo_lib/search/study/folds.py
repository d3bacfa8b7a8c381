"""The folds of a trial: all at a time, or in turn for as long as it may still be the best."""

import math
from functools import lru_cache
from operator import sub
from statistics import fmean

from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask


def next_fold(known: StudySnapshot, trial: int) -> FoldTask | None:
    """Return the next fold to be trained of a trial, on its highest rung; None if there is none, or none yet."""
    epochs, folds = known.top(trial), known.search.folds
    begun = len(known.fold_tasks(trial, epochs))
    if begun == folds.k:
        return None
    done = known.fold_values(trial, epochs)
    if math.inf in done or (folds.in_turn and (len(done) < begun or pruned(known, trial, epochs))):
        return None
    return FoldTask(trial, begun, epochs)


def pruned(known: StudySnapshot, trial: int, epochs: int) -> bool:
    """Tell whether a trial needs no more folds: a paired test says that the best one of its rung is better.

    Like all decisions it rests on what is known: should another become the best, the trial may go on.
    """
    best, level = known.rung_leaders.get(epochs), known.search.folds.prune
    ours = known.leading_fold_values(trial, epochs)
    if level is None or best is None or len(ours) < 2:
        return False
    differences = tuple(map(sub, ours, known.leading_fold_values(best, epochs)))
    return p_value(differences, known.search.folds.k) < level


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
