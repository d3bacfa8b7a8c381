"""Asynchronous successive halving: the best trials of each rung are promoted as soon as they are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise, takewhile

from nnlo_lib.search.pruners.base import Pruner
from nnlo_lib.search.study.snapshot import StudySnapshot


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
    """Return the rungs: first, first * factor, ... while they are below `epochs`, and then `epochs`.

    Args:
        first: lowest rung in epochs.
        factor: ratio of the epochs of adjacent rungs.
        epochs: number of epochs of a full training.
    """
    return (*takewhile(lambda rung: rung < epochs, (first * factor**k for k in count())), epochs)


def promotion(
    known: StudySnapshot, trials: Sequence[int], rungs: Sequence[int], factor: int
) -> tuple[int, int] | None:
    """Return the next promotion: a trial and its next rung; None if no trial qualifies.

    Args:
        known: snapshot of the study.
        trials: numbers of the trials that are compared.
        rungs: rungs of these trials in epochs, ascending.
        factor: one in `factor` trials of a rung is promoted.
    """
    # Algorithm 2 examines the rungs from the highest to the lowest.
    for here, above in reversed(list(pairwise(rungs))):
        for trial in _best(known, trials, here, factor):
            if known.top(trial) == here:
                return trial, above
    return None


def _best(known: StudySnapshot, trials: Iterable[int], rung: int, factor: int) -> list[int]:
    """Return the best 1/factor of the trials that have ended at a rung.

    Failed trials and trials with pruned folds count as ended, but are never returned.

    Args:
        known: snapshot of the study.
        trials: numbers of the trials that are compared.
        rung: the rung in epochs.
        factor: one in `factor` ended trials is returned.
    """
    ended = [(value, trial) for trial in trials if (value := known.mean_value(trial, rung)) is not None]
    # Equal values are ordered by trial number, so that a replay makes the same decision.
    complete = sorted(each for each in ended if known.is_complete(each[1], rung))
    return [trial for _, trial in complete[: len(ended) // factor]]
