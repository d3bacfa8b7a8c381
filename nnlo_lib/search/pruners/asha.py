"""Asynchronous successive halving: the best of each rung go on as soon as they are known to be."""

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
        """Every trial may climb the whole ladder."""
        return ladder(self.first, self.factor, epochs)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Promote from the highest rung that has somebody to promote."""
        rungs = ladder(self.first, self.factor, known.epochs)
        return promotion(known, range(len(known.trials)), rungs, self.factor)


def ladder(first: int, factor: int, epochs: int) -> tuple[int, ...]:
    """Return first, first * factor, ... as far as they are less than `epochs`, and `epochs`."""
    return (*takewhile(lambda rung: rung < epochs, (first * factor**k for k in count())), epochs)


def promotion(
    known: StudySnapshot, trials: Sequence[int], rungs: Sequence[int], factor: int
) -> tuple[int, int] | None:
    """Return who goes up among trials that climb these rungs, and until which epoch."""
    for here, above in reversed(list(pairwise(rungs))):
        for trial in _best(known, trials, here, factor):
            if known.top(trial) == here:
                return trial, above
    return None


def _best(known: StudySnapshot, trials: Iterable[int], rung: int, factor: int) -> list[int]:
    """Return the best 1/factor of those that have ended at a rung; a failure and a pruned one end, but never here."""
    ended = [(worth, trial) for trial in trials if (worth := known.mean_value(trial, rung)) is not None]
    able = sorted(each for each in ended if known.is_complete(each[1], rung))
    return [trial for _, trial in able[: len(ended) // factor]]
