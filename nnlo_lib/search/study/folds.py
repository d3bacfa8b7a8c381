"""The folds of a trial: all in parallel, or one after another while the trial may still be the best."""

import math

from nnlo_lib.search.comparison.pruning_test import pruning_p_value
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
    noise, chosen_from = known.fold_noise(epochs), len(known.complete_trials[epochs])
    return pruning_p_value(values, known.fold_values(best, epochs), chosen_from, noise) < level
