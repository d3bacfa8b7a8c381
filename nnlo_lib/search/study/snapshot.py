"""What a decision may rest on: the trials so far, and the results of their leaves that are known."""

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
    """Trials by number, and results by leaf. epochs: of a full training; memo: numbers of leaves, as none changes."""

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
        """Return what was decided of a trial for a rung, by fold."""
        return self.trials[trial].rungs.get(epochs, [])

    def fold_values(self, trial: int, epochs: int, number: Number = fold_value) -> list[float]:
        """Return a number of each fold that has a result after so many epochs, in order."""
        return [self._number(number, leaf) for leaf in self.fold_tasks(trial, epochs) if leaf in self.results]

    def leading_fold_values(self, trial: int, epochs: int) -> list[float]:
        """Return what the folds of a trial are worth after so many epochs, in order, up to the first not known."""
        missing = [i for i, leaf in enumerate(self.fold_tasks(trial, epochs)) if leaf not in self.results]
        return self.fold_values(trial, epochs)[: missing[0] if missing else None]

    def has_failed(self, trial: int) -> bool:
        """Tell whether some fold of a trial came to nothing; it is on its highest rung, as no failure goes on."""
        return math.inf in self.fold_values(trial, self.top(trial))

    def is_complete(self, trial: int, epochs: int) -> bool:
        """Tell whether all folds of a trial are known after so many epochs, none of them failed."""
        known = self.fold_values(trial, epochs)
        return len(known) == self.search.folds.k and math.inf not in known

    def mean_value(self, trial: int, epochs: int, number: Number = fold_value) -> float | None:
        """Return the mean over the folds that were decided; infinite if one failed, None while one is awaited."""
        known = self.fold_values(trial, epochs, number)
        if math.inf in known:
            return math.inf
        return fmean(known) if known and len(known) == len(self.fold_tasks(trial, epochs)) else None

    def final_value(self, trial: int) -> float | None:
        """Return the mean at the highest rung that is known whole; infinite for a failure, None if none is."""
        if self.has_failed(trial):
            return math.inf
        known = (self.mean_value(trial, epochs) for epochs in reversed(self.trials[trial].rungs))
        return next((each for each in known if each is not None), None)

    @cached_property
    def rung_leaders(self) -> dict[int, int]:
        """Return the best trial of each rung, among those that have all folds there and failed nowhere."""
        whole = [
            (self.mean_value(trial.number, epochs) or 0.0, trial.number, epochs)
            for trial in self.trials
            if not self.has_failed(trial.number)
            for epochs in trial.rungs
            if self.is_complete(trial.number, epochs)
        ]
        return {epochs: trial for _, trial, epochs in sorted(whole, reverse=True)}

    @property
    def eligible_rungs(self) -> list[int]:
        """Return the rungs whose leaders may be the best: where the best epoch counts, more make no trial worse."""
        return sorted(self.rung_leaders)[0 if self.search.objective.epoch == "best" else -1 :]

    @property
    def winner(self) -> tuple[int, int] | None:
        """Return the best trial that has all folds, and its rung."""
        ranked = [
            (self.mean_value(self.rung_leaders[rung], rung) or 0.0, -rung) for rung in self.eligible_rungs
        ]
        rung = -min(ranked)[1] if ranked else 0
        return (self.rung_leaders[rung], rung) if ranked else None

    @property
    def contenders(self) -> dict[int, int]:
        """Return the trials that the winner was chosen among, and the epochs of each."""
        rungs = {
            trial.number: [rung for rung in self.eligible_rungs if self.is_complete(trial.number, rung)]
            for trial in self.trials
            if not self.has_failed(trial.number)
        }
        return {trial: whole[-1] for trial, whole in rungs.items() if whole}

    def best_trial(self) -> int | None:
        """Return the winner; without one, the trial that is best where most was invested: folds, then rungs."""
        if self.winner:
            return self.winner[0]
        reached = {}
        for trial in self.trials:
            for epochs in trial.rungs:
                folds = self.leading_fold_values(trial.number, epochs)
                if folds and not self.has_failed(trial.number):
                    reached[epochs, len(folds), -fmean(folds), -trial.number] = trial.number
        return reached[max(reached)] if reached else None

    def _number(self, number: Number, leaf: FoldTask) -> float:
        key = number, leaf
        if key not in self.memo:
            self.memo[key] = number(self.search.objective, self.results[leaf])
        return self.memo[key]
