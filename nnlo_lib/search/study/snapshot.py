"""The basis of a decision: the trials so far, the known results of their fold tasks, and the values of both.

A value is one number; smaller is better, and infinite if the trial failed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, takewhile
from statistics import fmean, stdev
from typing import Any, NamedTuple

from nnlo_lib.config.search import DirectedMetricConfig, ObjectiveConfig, SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.fold_statistics import FoldEffects, FoldNoise
from nnlo_lib.search.pareto import Vector, knee, pareto_front
from nnlo_lib.search.study.trial import FoldTask, Result, Trial


def fold_value(objective: ObjectiveConfig, result: Result) -> float:
    """Return the value of a fold after a fold task: best or last epoch; infinite if it is not valid."""
    if result.status != "finished" or exceeds_time_limit(objective, result):
        return math.inf
    return lowest(objective, result) if objective.epoch == "best" else latest(objective, result)


def latest(objective: ObjectiveConfig, result: Result) -> float:
    """Return the value of the last epoch; infinite if it is not finite."""
    return next(filter(math.isfinite, column(objective, result)[-1:]), math.inf)


def lowest(objective: ObjectiveConfig, result: Result) -> float:
    """Return the best value of all epochs; infinite if no epoch has a finite value."""
    return min(filter(math.isfinite, column(objective, result)), default=math.inf)


def running_average(objective: ObjectiveConfig, result: Result) -> float:
    """Return the mean of the finite values of all epochs so far; infinite if no epoch has a finite value."""
    finite = list(filter(math.isfinite, column(objective, result)))
    return fmean(finite) if finite else math.inf


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard error over folds; the error is NaN for a single fold or an infinite value."""
    finite = all(map(math.isfinite, values))
    error = stdev(values) / math.sqrt(len(values)) if finite and len(values) > 1 else math.nan
    return fmean(values), error


def exceeds_time_limit(objective: ObjectiveConfig, result: Result) -> bool:
    """Return True if a fold was trained for longer than the objective allows."""
    return objective.max_seconds is not None and any(
        row["seconds"] > objective.max_seconds for row in result.rows[-1:]
    )


def column(objective: DirectedMetricConfig, result: Result) -> list[float]:
    """Return the metric by epoch, smaller being better. Raises UserError if the history lacks its column."""
    try:
        values = [row[objective.metric] for row in result.rows]
    except KeyError as error:
        known = ", ".join(result.rows[0])
        raise UserError(
            f"search.objective.metric: trial {result.fold_task.trial} has no {objective.metric}; its history has the columns {known}"
        ) from error
    return [math.nan if each is None else objective.sign * each for each in values]


@dataclass(frozen=True)
class OtherValue:
    """Value of a fold in one of the further objectives, at the epoch whose value of the first objective counts."""

    place: int  # in `objective.others`

    def __call__(self, objective: ObjectiveConfig, result: Result) -> float:
        """Return the value; infinite if it or the value of the first objective is not valid."""
        first = fold_value(objective, result)
        if math.isinf(first):
            return math.inf
        place = -1 if objective.epoch == "last" else column(objective, result).index(first)
        value = column((objective.others or ())[self.place], result)[place]
        return value if math.isfinite(value) else math.inf


Number = Callable[[ObjectiveConfig, Result], float]  # of a fold, such as its value


class TrialFacts(NamedTuple):
    """What follows from the decisions and results of one trial alone: it is computed once for each state of a trial."""

    # `mean_value` by rung; NaN if the folds of other trials are needed to estimate it
    means: dict[int, float | None]
    complete: tuple[int, ...]  # rungs at which all folds have a result and none failed
    has_failed: bool
    has_value: bool  # whether `final_value` is not None
    may_continue: bool  # whether a fold of the highest rung is left and need not wait for another fold
    trained_epochs: int  # of all folds with a result


@dataclass(frozen=True)
class StudySnapshot:
    """The known state of a study, on which a decision is based; trials by number.

    `memo` caches the values computed from results: a result never changes.
    """

    search: SearchConfig
    epochs: int  # of a full training
    trials: Sequence[Trial]  # each has `number` and `point`
    results: Mapping[FoldTask, Result]
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def successor(self, trials: Sequence[Trial], results: Mapping[FoldTask, Result]) -> "StudySnapshot":
        """Return the snapshot of these trials and results; it keeps the facts of the trials that are the same in both."""
        found, facts = replace(self, trials=trials, results=results), self.facts[: len(trials)]
        ended = {task.trial for task in set(self.results).symmetric_difference(results)}
        changed = ended | {
            i for i, (one, other) in enumerate(zip(self.trials, trials, strict=False)) if one is not other
        }
        is_valued = bool(ended) or any(facts[number].has_value for number in changed)
        # The slots of cached properties: the facts of all trials need not be computed again.
        vars(found)["facts"] = facts
        for number in sorted(changed | {*range(len(facts), len(trials))}):
            facts[number : number + 1] = [found.facts_of(number)]
            is_valued |= facts[number].has_value
        if not is_valued and len(trials) >= len(self.trials):
            vars(found)["value_memo"] = self.value_memo
        return found

    @cached_property
    def facts(self) -> list[TrialFacts]:
        """Facts of each trial."""
        return [self.facts_of(trial.number) for trial in self.trials]

    @cached_property
    def value_memo(self) -> dict[Any, Any]:
        """What follows from the values of all trials; shared with a successor in which no value has changed."""
        return {}

    def facts_of(self, trial: int) -> TrialFacts:
        """Compute the facts of a trial."""
        folds, rungs = self.search.folds, self.trials[trial].rungs
        values = {epochs: self.fold_values(trial, epochs) for epochs in rungs}
        means: dict[int, float | None] = {}
        for epochs, known in values.items():
            means[epochs] = fmean(known) if len(known) == folds.k else math.nan
            if math.inf in known:
                means[epochs] = math.inf
            elif not known or len(known) < len(rungs[epochs]):
                means[epochs] = None
        complete = [rung for rung, known in values.items() if len(known) == folds.k and math.inf not in known]
        top = self.top(trial)
        has_failed = math.inf in values[top] and not (
            self._is_only_slow(trial, top) and any(rung < top for rung in complete)
        )
        has_value = has_failed or any(mean is not None and mean != math.inf for mean in means.values())
        may_continue = len(rungs[top]) < folds.k and math.inf not in values[top]
        may_continue = may_continue and not (folds.in_turn and len(values[top]) < len(rungs[top]))
        parent = self.trials[trial].parent
        trained = sum(
            (epochs - below) * len(values[epochs])
            for below, epochs in pairwise((parent.epochs if parent else 0, *rungs))
        )
        return TrialFacts(means, tuple(complete), has_failed, has_value, may_continue, trained)

    def _is_only_slow(self, trial: int, epochs: int) -> bool:
        """Return True if all folds without a value at a rung only exceeded the time limit."""
        objective = self.search.objective
        results = [self.results[each] for each in self.fold_tasks(trial, epochs) if each in self.results]
        lost = [each for each in results if math.isinf(fold_value(objective, each))]
        return all(each.status == "finished" and exceeds_time_limit(objective, each) for each in lost)

    def rungs(self, trial: int) -> list[int]:
        """Return the numbers of epochs up to which a trial is or was trained."""
        return list(self.trials[trial].rungs)

    def lineage(self, trial: int) -> dict[int, int]:
        """Return the trials whose weights a trial continues, the first one first, and itself; with the epoch of each start."""
        found: dict[int, int] = {}
        while parent := self.trials[trial].parent:
            found[trial], trial = parent.epochs, parent.trial
        return {trial: 0} | dict(reversed(found.items()))

    def top(self, trial: int) -> int:
        """Return the highest rung of a trial."""
        return next(reversed(self.trials[trial].rungs))

    def fold_tasks(self, trial: int, epochs: int) -> list[FoldTask]:
        """Return the decided fold tasks of a trial at a rung, by fold."""
        return self.trials[trial].rungs.get(epochs, [])

    def fold_values(self, trial: int, epochs: int, number: Number = fold_value) -> list[float]:
        """Return a number for each fold that has a result at a rung, in the order of the folds.

        `number` computes it from the objective and a result; default: the value of the fold.
        """
        known = [task for task in self.fold_tasks(trial, epochs) if task in self.results]
        for task in known:
            if (number, task) not in self.memo:
                self.memo[number, task] = number(self.search.objective, self.own_result(task))
        return [self.memo[number, task] for task in known]

    def own_result(self, task: FoldTask) -> Result:
        """Return the result of a fold task without the epochs that a parent trained, with other settings."""
        result, parent = self.results[task], self.trials[task.trial].parent
        if parent is None:
            return result
        return replace(result, rows=tuple(row for row in result.rows if row["epoch"] > parent.epochs))

    def leading_fold_values(self, trial: int, epochs: int, number: Number = fold_value) -> list[float]:
        """Return the numbers of a trial's folds at a rung, in order, up to the first fold without a result."""
        leading = takewhile(self.results.__contains__, self.fold_tasks(trial, epochs))
        return self.fold_values(trial, epochs, number)[: len(list(leading))]

    def has_failed(self, trial: int) -> bool:
        """Return True if a fold of a trial failed at its highest rung (failed trials are not promoted).

        A trial that only exceeded the time limit there keeps its value of a lower rung, at which it was within the limit.
        """
        return self.facts[trial].has_failed

    def is_complete(self, trial: int, epochs: int) -> bool:
        """Return True if all folds of a trial have a result at a rung and no fold failed."""
        return epochs in self.facts[trial].complete

    def mean_value(self, trial: int, epochs: int, number: Number = fold_value) -> float | None:
        """Return the mean over all folds; infinite if one failed, None while a result of a decided fold is missing.

        If folds are not decided (pruned), the mean is estimated by the effects of the folds on other trials.
        """
        mean = self.facts[trial].means.get(epochs)
        if number is fold_value and not (mean and math.isnan(mean)):
            return mean
        known = self.fold_values(trial, epochs, number)
        if math.inf in known:
            return math.inf
        if not known or len(known) < len(self.fold_tasks(trial, epochs)):
            return None
        if len(known) == self.search.folds.k:
            return fmean(known)
        return self.fold_effects(epochs, number).adjusted_mean(dict(enumerate(known)))

    def mean_values(self, trial: int, epochs: int) -> Vector | None:
        """Return `mean_value` of each objective; None while a result is missing."""
        numbers: list[Number] = [fold_value, *map(OtherValue, range(len(self.search.objectives) - 1))]
        found = [self.mean_value(trial, epochs, number) for number in numbers]
        return tuple(each for each in found if each is not None) if None not in found else None

    def fold_effects(self, epochs: int, number: Number = fold_value) -> FoldEffects:
        """Return the effects of the folds at a rung on the numbers of `fold_values`."""
        if (epochs, number) not in self._effects:
            found = (self.leading_fold_values(trial.number, epochs, number) for trial in self.trials)
            self._effects[epochs, number] = FoldEffects.of([each for each in found if math.inf not in each])
        return self._effects[epochs, number]

    def fold_noise(self, epochs: int) -> FoldNoise:
        """Return the noise between folds of the trials that have all folds at a rung."""
        if epochs not in self._noise:
            complete = self.complete_trials.get(epochs, [])
            self._noise[epochs] = FoldNoise.of([self.fold_values(trial, epochs) for trial in complete])
        return self._noise[epochs]

    @cached_property
    def _effects(self) -> dict[tuple[int, Number], FoldEffects]:
        return {}

    @cached_property
    def _noise(self) -> dict[int, FoldNoise]:
        return {}

    def final_value(self, trial: int) -> float | None:
        """Return the mean at the highest rung with all results, or None; infinite if the trial failed.

        A rung has all results if each decided fold task has one.
        """
        if self.has_failed(trial):
            return math.inf
        known = (self.mean_value(trial, epochs) for epochs in reversed(self.trials[trial].rungs))
        # Infinite at a rung above the time limit.
        return next((each for each in known if each is not None and math.isfinite(each)), None)

    @cached_property
    def complete_trials(self) -> dict[int, list[int]]:
        """Trials that have all folds at a rung and have not failed, by rung."""
        complete: dict[int, list[int]] = {}
        for trial, facts in enumerate(self.facts):
            for epochs in () if facts.has_failed else facts.complete:
                complete.setdefault(epochs, []).append(trial)
        return complete

    @cached_property
    def rung_leaders(self) -> dict[int, int]:
        """Best trial of each rung, among the trials that have all folds at the rung and have not failed."""
        return {
            # The mean of a complete rung is never None; `or 0.0` is for the type checker.
            epochs: min((self.facts[trial].means[epochs] or 0.0, trial) for trial in trials)[1]
            for epochs, trials in self.complete_trials.items()
        }

    @property
    def eligible_rungs(self) -> list[int]:
        """Rungs from which the winner is chosen: the highest, or all rungs if the best epoch counts.

        More epochs cannot make the best epoch worse, so the leader of a lower rung is eligible as well.
        """
        return sorted(self.rung_leaders)[0 if self.search.objective.epoch == "best" else -1 :]

    @property
    def winner(self) -> tuple[int, int] | None:
        """Best trial that has all folds, and its rung; None if no trial has all folds."""
        leaders = self.rung_leaders
        # Of equal values, the one of the higher rung wins.
        ranked = [(self.mean_value(leaders[rung], rung) or 0.0, -rung) for rung in self.eligible_rungs]
        return (leaders[-min(ranked)[1]], -min(ranked)[1]) if ranked else None

    @property
    def contenders(self) -> dict[int, int]:
        """Trials among which the winner was chosen, and the number of epochs of each."""
        # Rungs are ascending: the last one of a trial replaces the others.
        return {trial: rung for rung in self.eligible_rungs for trial in self.complete_trials[rung]}

    @cached_property
    def front(self) -> dict[int, Vector]:
        """Pareto front of the contenders, the best in the first objective first; empty for a search with one objective."""
        if len(self.search.objectives) == 1:
            return {}
        found = {trial: self.mean_values(trial, rung) or () for trial, rung in self.contenders.items()}
        valid = {trial: values for trial, values in found.items() if math.inf not in values}
        return {trial: valid[trial] for trial in pareto_front(valid)}

    def best_trial(self) -> int | None:
        """Return the winner, or the choice from the front; None if no trial has a valid result.

        Without a winner, return the trial with the highest rung, then the most folds, then the best mean.
        """
        if self.front:
            return knee(self.front) if self.search.choose == "knee" else next(iter(self.front))
        if self.winner:
            return self.winner[0]
        reached = {}
        for trial in self.trials:
            for epochs in trial.rungs:
                folds = self.leading_fold_values(trial.number, epochs)
                if folds and math.inf not in folds and not self.has_failed(trial.number):
                    reached[epochs, len(folds), -fmean(folds), -trial.number] = trial.number
        return reached[max(reached)] if reached else None
