"""The folds of a trial: all at a time, or in turn for as long as it may still be the best."""

import math

from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.trial import Leaf


def next_fold(known: Knowledge, trial: int) -> Leaf | None:
    """Return the next fold to be trained of a trial, on its highest rung; None if there is none, or none yet."""
    epochs, folds = known.rungs(trial)[-1], known.search.folds
    begun, done = len(known.leaves(trial, epochs)), known.folds(trial, epochs)
    if begun == folds.k or any(map(math.isinf, done)):
        return None
    if folds.in_turn and (len(done) < begun or pruned(known, trial, epochs)):
        return None
    return Leaf(trial, begun, epochs)


def pruned(known: Knowledge, trial: int, epochs: int) -> bool:
    """Tell whether a trial needs no more folds."""
    return False
