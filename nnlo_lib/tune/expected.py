"""How much a search is going to train: how many trials come to which rung."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from nnlo_lib.config import Experiment, Search
from nnlo_lib.search.fidelity.build import policy


@dataclass(frozen=True)
class Expected:
    """trials: by the number of epochs that they come to; jobs, epochs: of all their folds."""

    trials: dict[int, int]
    jobs: int
    epochs: int


def expected(experiment: Experiment, search: Search, factor: int | None = None) -> Expected:
    """Count what a search trains. factor: of those on a rung, one in so many goes on; 1: all, None: as the fidelity says.

    Of median stopping, and of folds that a test makes needless, nothing is known beforehand: all are counted.
    """
    climbs, epochs = policy(search.fidelity), experiment.train.epochs
    divisor = getattr(search.fidelity, "factor", 1) if factor is None else factor
    trials, total = Counter[int](), 0
    ladders = Counter(climbs.rungs(trial, epochs) for trial in range(search.trials))
    for rungs, count in ladders.items():
        for height, (below, rung) in enumerate(pairwise((0, *rungs))):
            there = count // divisor**height
            trials[rung] += there
            total += there * (rung - below)
    folds = search.folds.k
    kept = {rung: count for rung, count in sorted(trials.items()) if count}
    return Expected(kept, folds * trials.total(), folds * total)
