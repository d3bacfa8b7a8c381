"""Asynchronous Hyperband: brackets of successive halving that start at different rungs."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice, pairwise, repeat

from nnlo_lib.search.pruners.asha import ladder, promotion
from nnlo_lib.search.pruners.base import Pruner
from nnlo_lib.search.study.snapshot import StudySnapshot


@dataclass(frozen=True)
class HyperbandPruner(Pruner):
    """Brackets of ASHA, bracket s without the s lowest rungs (Li et al. 2018, arXiv:1603.06560 and 1810.05934).

    Trials are assigned so that every bracket is expected to get the same number of epochs. Hyperband's
    n_s = ceil((s_max + 1) / (s + 1) factor^s) has the same aim. Trials resume: each epoch counts once.
    """

    first: int
    factor: int

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the rungs of the trial's bracket."""
        every = ladder(self.first, self.factor, epochs)
        return every[bracket(every, self.factor, trial) :]

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Promote to the highest possible rung of all brackets; compare trials within one bracket only."""
        brackets: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for trial in known.trials:
            brackets[self.rungs(trial.number, known.epochs)].append(trial.number)
        promoted = [promotion(known, trials, rungs, self.factor) for rungs, trials in brackets.items()]
        # Ties between brackets go to the earlier trial, so that the decision is reproducible.
        return max(filter(None, promoted), key=lambda each: (each[1], -each[0]), default=None)


@cache
def bracket(every: Sequence[int], factor: int, trial: int) -> int:
    """Return the bracket of a trial: the number of lowest rungs that the trial omits.

    All brackets have nearly the same cost (Webster's method).

    Args:
        every: all rungs in epochs, ascending.
        factor: one in `factor` trials of a rung is promoted.
        trial: number of the trial, from 0.
    """
    costs = [expected_epochs(every[s:], factor) for s in range(len(every))]
    # Webster's divisors 1/2, 3/2, ...: trial j of a bracket has the rank (j + 1/2) * cost, lowest first.
    sequences = (zip(count(cost / 2, cost), repeat(s)) for s, cost in enumerate(costs))
    return next(islice((s for _, s in heapq.merge(*sequences)), trial, None))


def expected_epochs(rungs: Sequence[int], factor: int) -> float:
    """Return the mean number of epochs of a trial if 1/factor of the trials are promoted at each rung."""
    return sum((above - here) / float(factor) ** k for k, (here, above) in enumerate(pairwise((0, *rungs))))
