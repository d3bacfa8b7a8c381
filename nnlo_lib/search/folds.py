"""The folds of a trial: all at a time, or in turn for as long as it may still be the best."""

import math
from operator import sub

from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.paired import p_value
from nnlo_lib.search.trial import Leaf


def next_fold(known: Knowledge, trial: int) -> Leaf | None:
    """Return the next fold to be trained of a trial, on its highest rung; None if there is none, or none yet."""
    epochs, folds = known.top(trial), known.search.folds
    begun = len(known.leaves(trial, epochs))
    if begun == folds.k:
        return None
    done = known.known(trial, epochs)
    if math.inf in done or (folds.in_turn and (len(done) < begun or pruned(known, trial, epochs))):
        return None
    return Leaf(trial, begun, epochs)


def pruned(known: Knowledge, trial: int, epochs: int) -> bool:
    """Tell whether a trial needs no more folds: a paired test says that the best one of its rung is better.

    Like all decisions it rests on what is known: should another become the best, the trial may go on.
    """
    best, level = known.leaders.get(epochs), known.search.folds.prune
    ours = known.folds(trial, epochs)
    if level is None or best is None or len(ours) < 2:
        return False
    differences = tuple(map(sub, ours, known.folds(best, epochs)))
    return p_value(differences, known.search.folds.k) < level
