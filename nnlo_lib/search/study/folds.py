"""The folds of a trial: all in parallel, or one after another while the trial may still be the best."""

import math
from functools import lru_cache
from operator import sub
from statistics import fmean

from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask


def next_fold(known: StudySnapshot, trial: int) -> FoldTask | None:
    """Return the next fold task of a trial at its highest rung; None if no fold is left or it must wait."""
    epochs, folds = known.top(trial), known.search.folds
    decided = len(known.fold_tasks(trial, epochs))
    if decided == folds.k:
        return None
    done = known.fold_values(trial, epochs)
    if math.inf in done or (folds.in_turn and (len(done) < decided or pruned(known, trial, epochs))):
        return None
    return FoldTask(trial, decided, epochs)


def pruned(known: StudySnapshot, trial: int, epochs: int) -> bool:
    """Return True if a trial needs no more folds: a paired test finds the best trial of its rung better.

    Like all decisions, this depends on the known results: if another trial becomes the best, this trial may
    resume.

    Args:
        known: snapshot of the study.
        trial: number of the trial.
        epochs: the rung in epochs.
    """
    best, level = known.rung_leaders.get(epochs), known.search.folds.prune
    values = known.leading_fold_values(trial, epochs)
    if level is None or best is None or len(values) < 2:
        return False
    differences = tuple(map(sub, values, known.leading_fold_values(best, epochs)))
    return p_value(differences, known.search.folds.k) < level


@lru_cache(maxsize=10_000)
def p_value(differences: tuple[float, ...], folds: int) -> float:
    """Return the p-value of the mean difference: corrected paired t-test, one-sided.

    The training sets of the folds overlap, so that a plain t-test is overconfident. The variance of the mean
    is (1/n + 1/(k-1)) s^2 instead of s^2/n (Nadeau and Bengio 2003, section 3; n_test/n_train = 1/(k-1)).
    The p-value of Wilcoxon's signed-rank test cannot fall below 1/2^n.

    Args:
        differences: two or more differences by fold, positive if the candidate is worse.
        folds: number of folds k.
    """
    count, mean = len(differences), fmean(differences)
    # The t statistic is not defined for a variance of 0.
    if max(differences) == min(differences):
        return 0.0 if mean > 0 else 1.0
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (count - 1))
    from scipy.special import stdtr  # imported here because it takes 0.1 s and only pruning needs it

    return float(stdtr(count - 1, -mean / (spread * math.sqrt(1 / count + 1 / (folds - 1)))))
