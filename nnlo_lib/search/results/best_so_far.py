"""Values of the trials in the order in which they became known, against the core hours of the search."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class KnownValue:
    """A value of a candidate for the best trial.

    Attributes:
        trial: number of the trial.
        core_hours: core hours of the search until the value was known.
        value: mean over all folds; smaller is better.
    """

    trial: int
    core_hours: float
    value: float


class SearchCosts:
    """Core hours of a search at the end of each fold task."""

    def __init__(self, known: StudySnapshot) -> None:
        results = sorted(known.results.values(), key=lambda result: result.ended)
        self._known = known
        self._ends = [result.ended for result in results]
        self._hours = list(accumulate(each.cores * each.seconds / SECONDS_PER_HOUR for each in results))

    @property
    def total(self) -> float:
        """Core hours of all fold tasks that have ended."""
        return self._hours[-1] if self._hours else 0.0

    def until(self, fold_tasks: Sequence[FoldTask]) -> float:
        """Return the core hours of all fold tasks that ended no later than the last of some fold tasks."""
        ends = [self._known.results[each].ended for each in fold_tasks if each in self._known.results]
        return self._hours[bisect_right(self._ends, max(ends)) - 1] if ends else 0.0


def candidate_values(known: StudySnapshot) -> list[KnownValue]:
    """Return the values among which the best trial is chosen, in the order in which they became known.

    These are the values of trials with all folds at the rungs that are compared: for the last epoch the highest rung only.
    """
    costs = SearchCosts(known)
    found = [
        KnownValue(trial, costs.until(known.fold_tasks(trial, rung)), known.mean_value(trial, rung) or 0.0)
        for rung in known.eligible_rungs
        for trial in known.complete_trials[rung]
    ]
    return sorted(found, key=lambda each: (each.core_hours, each.trial))
