"""Pruners: the rungs that a trial may reach, and the trial to promote next.

ASHA, Hyperband, median stopping, or no pruning; for population-based training see population.py. A decision depends on the
known results only: a trial that stopped may resume when later trials are worse.
"""

import heapq
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice, pairwise, repeat, takewhile
from typing import Any, Self

from nnlo_lib.config.search import FidelityConfig
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.search.pareto import count_dominating
from nnlo_lib.search.study.snapshot import StudySnapshot, lowest, running_average
from nnlo_lib.search.study.trial import SearchPoint, Trial

# Returns a point for a trial number that was not proposed before, or None if no point is left.
TrialSampler = Callable[[int, StudySnapshot], SearchPoint | None]


class Pruner(ABC):
    """Decides the number of epochs of each trial; a pure function of the study's snapshot."""

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Return the pruner; the settings of `search.fidelity` are the keyword arguments of the class."""
        return cls(**config.arguments)

    @abstractmethod
    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the numbers of epochs at which a trial may stop; the last is `epochs`, the full training."""

    @abstractmethod
    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Return the trial to continue and its next rung in epochs; None if no trial is promoted."""

    def unfinished(self, known: StudySnapshot) -> set[int]:
        """Return trials that may continue later although `promote` does not name them now: they keep their checkpoints."""
        return set()

    def new_trial(self, known: StudySnapshot, propose: TrialSampler) -> Trial | None:
        """Return a new trial with the point that the sampler proposes; None if no point is left."""
        point = propose(len(known.trials), known)
        return None if point is None else Trial(len(known.trials), point)


def build_pruner(config: FidelityConfig) -> Pruner:
    """Return the pruner of `search.fidelity`."""
    kind: type[Pruner] = load_implementation(config.reference)
    return kind.from_config(config)


class NoPruner(Pruner):
    """No pruning: every trial is trained for all epochs."""

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return a single rung: the full training."""
        return (epochs,)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Return None: no trial stops at a lower rung."""
        return None


@dataclass(frozen=True)
class AshaPruner(Pruner):
    """ASHA (Li et al. 2018, arXiv:1810.05934, algorithm 2)."""

    first: int
    factor: int

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return all rungs: every trial may reach the last one."""
        return ladder(self.first, self.factor, epochs)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Promote from the highest rung that has a trial to promote."""
        rungs = ladder(self.first, self.factor, known.epochs)
        return promotion(known, range(len(known.trials)), rungs, self.factor)


def ladder(first: int, factor: int, epochs: int) -> tuple[int, ...]:
    """Return the rungs: first, first * factor, ... while they are below `epochs`, and then `epochs`."""
    return (*takewhile(lambda rung: rung < epochs, (first * factor**k for k in count())), epochs)


def promotion(
    known: StudySnapshot, trials: Sequence[int], rungs: Sequence[int], factor: int
) -> tuple[int, int] | None:
    """Return the next promotion among some trials, with ascending rungs: a trial and its next rung; None if none qualifies."""
    # Algorithm 2 examines the rungs from the highest to the lowest.
    for here, above in reversed(list(pairwise(rungs))):
        for trial in _best(known, trials, here, factor):
            if known.top(trial) == here:
                return trial, above
    return None


def _best(known: StudySnapshot, trials: Iterable[int], rung: int, factor: int) -> list[int]:
    """Return the best 1/factor of the trials that have ended at a rung: those that the fewest others dominate.

    Failed trials and trials with pruned folds count as ended, but are never returned.
    """
    facts, several = known.facts, len(known.search.objectives) > 1
    ended = [trial for trial in trials if facts[trial].means.get(rung) is not None]
    complete = [trial for trial in ended if rung in facts[trial].complete]
    worse_than = dict.fromkeys(complete, 0)
    if several:
        vectors = {trial: known.mean_values(trial, rung) or () for trial in complete}
        # A trial may lack a value of a further objective.
        valid = {trial: vector for trial, vector in vectors.items() if math.inf not in vector}
        complete, worse_than = list(valid), count_dominating(valid)
    # Equal values are ordered by trial number, so that a replay makes the same decision.
    complete.sort(key=lambda trial: (worse_than[trial], facts[trial].means[rung] or 0.0, trial))
    return complete[: len(ended) // factor]


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


def bracket(every: Sequence[int], factor: int, trial: int) -> int:
    """Return the bracket of a trial: the number of lowest rungs of `every` that the trial omits.

    All brackets have nearly the same cost (Webster's method).
    """
    found, rest = _brackets(every, factor)
    found += islice(rest, max(0, trial + 1 - len(found)))
    return found[trial]


@cache
def _brackets(every: Sequence[int], factor: int) -> tuple[list[int], Iterator[int]]:
    """Return the brackets of the trials so far, to be continued, and those of the next ones."""
    # Mean number of epochs of a trial if 1/factor of the trials are promoted at each rung.
    costs = [
        sum((above - here) / float(factor) ** k for k, (here, above) in enumerate(pairwise((0, *every[s:]))))
        for s in range(len(every))
    ]
    # Webster's divisors 1/2, 3/2, ...: trial j of a bracket has the rank (j + 1/2) * cost, lowest first.
    sequences = (zip(count(cost / 2, cost), repeat(s)) for s, cost in enumerate(costs))
    return [], (s for _, s in heapq.merge(*sequences))


@dataclass(frozen=True)
class MedianPruner(Pruner):
    """The median stopping rule of Vizier (Golovin et al. 2017, section 3.2.2).

    A trial stops if its best value so far is worse than the median of the other trials' running averages at
    the same number of epochs; `trials` others must have reached it.
    """

    every: int
    grace: int
    trials: int

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which a trial is checked, and `epochs`."""
        return (*range(self.grace, epochs, self.every), epochs)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Promote the first waiting trial that the rule does not stop; None if there is no candidate."""
        rungs = self.rungs(0, known.epochs)
        waiting = [(trial.number, known.top(trial.number)) for trial in known.trials]
        waiting = [each for each in waiting if each[1] < known.epochs and known.is_complete(*each)]
        averages: dict[int, list[float]] = {}
        for rung in {rung for _, rung in waiting}:
            reached = [
                trial
                for trial, facts in enumerate(known.facts)
                if facts.means.get(rung) not in (None, math.inf)
            ]
            averages[rung] = sorted(known.mean_value(each, rung, running_average) or 0.0 for each in reached)
        for trial, rung in waiting:
            # `or 0.0` is never used (the rung is complete); it tells the type checker that the value is not None.
            best = known.mean_value(trial, rung, lowest) or 0.0
            own = bisect_left(averages[rung], known.mean_value(trial, rung, running_average) or 0.0)
            if len(averages[rung]) <= self.trials or best <= _median_without(averages[rung], own):
                return trial, next(above for above in rungs if above > rung)
        return None


def _median_without(ranked: Sequence[float], own: int) -> float:
    """Return the median of ascending numbers without the one at a place."""
    low, high = (len(ranked) - 2) // 2, (len(ranked) - 1) // 2
    return (ranked[low + (low >= own)] + ranked[high + (high >= own)]) / 2
