"""The basis of a decision: the trials so far, and the known results of their fold tasks."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from nnlo_lib.config.search import ObjectiveConfig, SearchConfig
from nnlo_lib.search.study.objective import fold_value
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial

Number = Callable[[ObjectiveConfig, Result], float]


@dataclass(frozen=True)
class StudySnapshot:
    """The known state of a study, on which a decision is based.

    Attributes:
        epochs: number of epochs of a full training.
        trials: trials by number.
        results: results by fold task.
        memo: cache of the values computed from results; a result never changes.
    """

    search: SearchConfig
    epochs: int
    trials: Sequence[Trial]
    results: Mapping[FoldTask, Result]
    memo: dict[Any, float] = field(default_factory=dict, repr=False, compare=False)

    def decisions(self) -> Iterator[SchedulingDecision]:
        """Yield all decisions, by trial."""
        for trial in self.trials:
            yield from trial.decisions

    def rungs(self, trial: int) -> list[int]:
        """Return the numbers of epochs up to which a trial is or was trained."""
        return list(self.trials[trial].rungs)

    def top(self, trial: int) -> int:
        """Return the highest rung of a trial."""
        return next(reversed(self.trials[trial].rungs))

    def fold_tasks(self, trial: int, epochs: int) -> list[FoldTask]:
        """Return the decided fold tasks of a trial at a rung, by fold."""
        return self.trials[trial].rungs.get(epochs, [])

    def fold_values(self, trial: int, epochs: int, number: Number = fold_value) -> list[float]:
        """Return a number for each fold that has a result at a rung, in the order of the folds.

        Args:
            trial: number of the trial.
            epochs: the rung in epochs.
            number: computes the number from the objective and a result; default: the value of the fold.
        """
        return [
            self._number(number, fold_task)
            for fold_task in self.fold_tasks(trial, epochs)
            if fold_task in self.results
        ]

    def leading_fold_values(self, trial: int, epochs: int) -> list[float]:
        """Return the values of a trial's folds at a rung, in order, up to the first fold without a result."""
        missing = [
            i for i, fold_task in enumerate(self.fold_tasks(trial, epochs)) if fold_task not in self.results
        ]
        return self.fold_values(trial, epochs)[: missing[0] if missing else None]

    def has_failed(self, trial: int) -> bool:
        """Return True if a fold of a trial failed at its highest rung (failed trials are not promoted)."""
        return math.inf in self.fold_values(trial, self.top(trial))

    def is_complete(self, trial: int, epochs: int) -> bool:
        """Return True if all folds of a trial have a result at a rung and no fold failed."""
        known = self.fold_values(trial, epochs)
        return len(known) == self.search.folds.k and math.inf not in known

    def mean_value(self, trial: int, epochs: int, number: Number = fold_value) -> float | None:
        """Return the mean over the decided folds; infinite if one failed, None while a result is missing.

        Args:
            trial: number of the trial.
            epochs: the rung in epochs.
            number: computes the number to average, as in `fold_values`.
        """
        known = self.fold_values(trial, epochs, number)
        if math.inf in known:
            return math.inf
        return fmean(known) if known and len(known) == len(self.fold_tasks(trial, epochs)) else None

    def final_value(self, trial: int) -> float | None:
        """Return the mean at the highest rung with all results, or None; infinite if the trial failed.

        A rung has all results if each decided fold task has one.
        """
        if self.has_failed(trial):
            return math.inf
        known = (self.mean_value(trial, epochs) for epochs in reversed(self.trials[trial].rungs))
        return next((each for each in known if each is not None), None)

    @cached_property
    def rung_leaders(self) -> dict[int, int]:
        """Best trial of each rung, among the trials that have all folds at the rung and have not failed."""
        complete = [
            # The mean of a complete rung is never None; `or 0.0` is for the type checker.
            (self.mean_value(trial.number, epochs) or 0.0, trial.number, epochs)
            for trial in self.trials
            if not self.has_failed(trial.number)
            for epochs in trial.rungs
            if self.is_complete(trial.number, epochs)
        ]
        # In descending order, the best trial of a rung is the last one and replaces the others.
        return {epochs: trial for _, trial, epochs in sorted(complete, reverse=True)}

    @property
    def eligible_rungs(self) -> list[int]:
        """Rungs from which the winner is chosen: the highest, or all rungs if the best epoch counts.

        More epochs cannot make the best epoch worse, so the leader of a lower rung is eligible as well.
        """
        return sorted(self.rung_leaders)[0 if self.search.objective.epoch == "best" else -1 :]

    @property
    def winner(self) -> tuple[int, int] | None:
        """Best trial that has all folds, and its rung; None if no trial has all folds."""
        ranked = [
            (self.mean_value(self.rung_leaders[rung], rung) or 0.0, -rung) for rung in self.eligible_rungs
        ]
        # Of equal values, the one of the higher rung wins.
        rung = -min(ranked)[1] if ranked else 0
        return (self.rung_leaders[rung], rung) if ranked else None

    @property
    def contenders(self) -> dict[int, int]:
        """Trials among which the winner was chosen, and the number of epochs of each."""
        rungs = {
            trial.number: [rung for rung in self.eligible_rungs if self.is_complete(trial.number, rung)]
            for trial in self.trials
            if not self.has_failed(trial.number)
        }
        return {trial: complete[-1] for trial, complete in rungs.items() if complete}

    def best_trial(self) -> int | None:
        """Return the winner; None if no trial has a valid result.

        Without a winner, return the trial with the highest rung, then the most folds, then the best mean.
        """
        if self.winner:
            return self.winner[0]
        reached = {}
        for trial in self.trials:
            for epochs in trial.rungs:
                folds = self.leading_fold_values(trial.number, epochs)
                if folds and not self.has_failed(trial.number):
                    reached[epochs, len(folds), -fmean(folds), -trial.number] = trial.number
        return reached[max(reached)] if reached else None

    def _number(self, number: Number, fold_task: FoldTask) -> float:
        key = number, fold_task
        if key not in self.memo:
            self.memo[key] = number(self.search.objective, self.results[fold_task])
        return self.memo[key]
