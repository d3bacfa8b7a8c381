"""Median stopping: a trial pauses if its best value is worse than the median of the others' averages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from nnlo_lib.search.pruners.base import Pruner
from nnlo_lib.search.study.objective import lowest, running_average
from nnlo_lib.search.study.snapshot import StudySnapshot


@dataclass(frozen=True)
class MedianPruner(Pruner):
    """The median stopping rule of Vizier (Golovin et al. 2017, section 3.2.2).

    A trial stops if its best value so far is worse than the median of the other trials' running averages at
    the same number of epochs. The rule is applied again when new results are known: a stopped trial resumes
    if later trials are worse.

    Attributes:
        every: number of epochs between two checks.
        grace: number of epochs for which every trial is trained.
        trials: number of other trials that must have reached a rung before a trial is stopped there.
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
        averages = {rung: self._averages(known, rung) for rung in {rung for _, rung in waiting}}
        for trial, rung in waiting:
            if not self._stopped(known, trial, rung, averages[rung]):
                return trial, next(above for above in rungs if above > rung)
        return None

    def _stopped(self, known: StudySnapshot, trial: int, rung: int, averages: Sequence[float]) -> bool:
        """Return True if the rule stops the trial.

        Args:
            known: snapshot of the study.
            trial: number of the trial.
            rung: number of epochs for which the trial was trained.
            averages: sorted running averages of all trials at this rung, this trial included.
        """
        # `or 0.0` is never used (the rung is complete); it tells the type checker that the value is not None.
        best, own = (
            known.mean_value(trial, rung, lowest) or 0.0,
            known.mean_value(trial, rung, running_average) or 0.0,
        )
        others = list(averages)
        others.remove(own)
        return len(others) >= self.trials and best > median(others)

    @staticmethod
    def _averages(known: StudySnapshot, rung: int) -> list[float]:
        reached = [t.number for t in known.trials if known.mean_value(t.number, rung) not in (None, math.inf)]
        return sorted(known.mean_value(trial, rung, running_average) or 0.0 for trial in reached)
