"""Search: its decisions as pure functions of the known results, its main loop, and its replay.

A decision is the next fold of a trial, a promotion to the next rung, a new trial, or the end of the search.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Protocol

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.fold_statistics import pruning_p_value
from nnlo_lib.search.pruners import Pruner, TrialSampler, build_pruner
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.space.space import first_points
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import (
    SECONDS_PER_HOUR,
    FoldTask,
    Result,
    SchedulingDecision,
    SearchPoint,
    Trial,
    decisions_in_order,
    drop_checkpoints,
    read_result,
    read_trials,
    refuse_other_results,
    resource_hours,
    write_trial,
)

Proposal = tuple[Trial, FoldTask, Sequence[SchedulingDecision]]  # with the decisions treated as pending


class Study:
    """A search in its folder: decides on fold tasks and writes the decisions; `epochs` of a full training.

    The process must hold the folder's lease: only one process may use the folder at any time.
    """

    def __init__(
        self, folder: Path, search: SearchConfig, epochs: int, propose: TrialSampler, parallel: int
    ) -> None:
        self._folder, self._search, self._epochs = folder, search, epochs
        self._propose, self.parallel = propose, parallel
        self._policy = build_pruner(search.fidelity)
        self._latest = StudySnapshot(search, epochs, (), {})
        self.trials = read_trials(folder)
        self.decisions = decisions_in_order(self.trials)
        self.unfinished = list(self.decisions)  # decisions without a result
        self.results: dict[FoldTask, Result] = {}
        self._path_of = cache(lambda task: task.result_path(folder))
        self.refresh()

    @classmethod
    def of(cls, folder: Path, experiment: Experiment, parallel: int | None = None) -> "Study":
        """Return the search of an experiment with the sampler of its `search.method`; `parallel`: else `search.parallel`."""
        search = experiment.search
        assert search is not None, "only an experiment with a search has a study"

        # Built at the first proposal: a sampler takes seconds to import, and a search that has ended needs none.
        sampler, first = cache(lambda: build_sampler(search)), cache(lambda: first_points(experiment))

        def propose(number: int, known: StudySnapshot) -> SearchPoint | None:
            # The first trial is the experiment itself, to which the best trial is compared.
            is_first = number <= len(search.start) and number < len(first())
            return first()[number] if is_first else sampler()(number, known)

        return cls(folder, search, experiment.train.epochs, propose, parallel or search.parallel)

    def refresh(self) -> None:
        """Read the results that were written after the last call."""
        left = []
        for decision in self.unfinished:
            # Of a thousand running fold tasks, most have no result; an exception for each would take longer than a decision.
            is_there = os.access(self._path_of(decision.task), os.F_OK)
            if is_there and (result := read_result(self._folder, decision.task)):
                self.results[decision.task] = result
            else:
                left.append(decision)
        self.unfinished = left

    def snapshot(self, pending: Sequence[SchedulingDecision] = ()) -> StudySnapshot:
        """Return the known trials and results, without the results of the `pending` decisions."""
        results = dict(self.results)
        for decision in pending:
            results.pop(decision.task, None)
        self._latest = self._latest.successor(tuple(self.trials), results)
        return self._latest

    def decide(self) -> SchedulingDecision | None:
        """Decide on the next fold task and write the decision; None if no task can be decided."""
        if self._search.order == "fixed":
            proposal = self._propose_fixed()
        else:
            proposal = self._next(self.unfinished) if len(self.unfinished) < self.parallel else None
        return self._write(*proposal) if proposal else None

    @property
    def has_ended(self) -> bool:
        """True if all decisions have results, and these results leave nothing to decide."""
        # Nothing is treated as pending: a larger `parallel` must not continue a search that has ended.
        return not self.unfinished and self._next(()) is None

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints that nothing needs after the end of the search; a repeated call completes a killed one.

        Kept are those of trials that a larger budget, or another target, would continue at once. A trial that a larger
        `trials` promotes is trained again from its beginning, at most 1/factor of the trials of a rung.
        """
        known = self.snapshot()
        waiting = {task.trial for task in waiting_tasks(known, self._policy)} | self._policy.unfinished(known)
        for trial, fold in {(each.task.trial, each.task.fold) for each in self.decisions}:
            if trial not in waiting:
                drop_checkpoints(SearchPaths(self._folder).fold(trial, fold))

    def _propose_fixed(self) -> Proposal | None:
        """Propose as if the last `parallel` - 1 decisions had no results: the order of arrival has no effect.

        If this gives no proposal, treat fewer decisions as pending and wait for the results of the others.
        """
        count = len(self.decisions)
        for width in range(min(self.parallel - 1, count), -1, -1):
            # The results of all decisions before the pending ones must be known.
            if self.unfinished and self.unfinished[0].number < count - width:
                return None
            if proposal := self._next(self.decisions[count - width :]):
                return proposal
        return None

    def _next(self, pending: Sequence[SchedulingDecision]) -> Proposal | None:
        known = self.snapshot(pending)
        if reason_to_end(known):
            return None
        if fold_task := next_task(known, self._policy):
            return self.trials[fold_task.trial], fold_task, pending
        limit = known.search.trial_limit
        if limit is not None and len(known.trials) >= limit:
            return None
        new = new_trial(known, self._policy, self._propose)
        return (*new, pending) if new else None

    def _write(
        self, trial: Trial, fold_task: FoldTask, pending: Sequence[SchedulingDecision]
    ) -> SchedulingDecision:
        if not trial.decisions:
            refuse_other_results(self._folder, trial)
        decision = SchedulingDecision(len(self.decisions), fold_task, tuple(each.number for each in pending))
        trial = replace(trial, decisions=(*trial.decisions, decision))
        # On disk before the task is started: a restarted driver must find each decision whose task may run.
        write_trial(self._folder, trial)
        self.trials[trial.number : trial.number + 1] = [trial]
        self.decisions.append(decision)
        # The folder may have the result already, of an earlier trial with the same point.
        if result := read_result(self._folder, fold_task):
            self.results[fold_task] = result
        else:
            self.unfinished.append(decision)
        return decision


def next_task(known: StudySnapshot, policy: Pruner) -> FoldTask | None:
    """Return the next fold task of existing trials: a trial's next fold, or the first fold of its next rung.

    Return None if all existing trials are finished or wait for results.
    """
    for trial, facts in enumerate(known.facts):
        if facts.may_continue and (fold_task := next_fold(known, trial)):
            return fold_task
    promoted = policy.promote(known)
    return FoldTask(promoted[0], 0, promoted[1]) if promoted else None


def waiting_tasks(known: StudySnapshot, policy: Pruner) -> set[FoldTask]:
    """Return the fold tasks of existing trials that would be decided now, if nothing but `next_task` ended the search."""
    trials, found = list(known.trials), set[FoldTask]()
    while (task := next_task(replace(known, trials=trials), policy)) and task not in found:
        found.add(task)
        decided = (*trials[task.trial].decisions, SchedulingDecision(-1, task, ()))
        trials[task.trial] = replace(trials[task.trial], decisions=decided)
    return found


def next_fold(known: StudySnapshot, trial: int) -> FoldTask | None:
    """Return the next fold task of a trial at its highest rung; None if no fold is left or it must wait."""
    epochs = known.top(trial)
    if not known.facts[trial].may_continue or (known.search.folds.in_turn and pruned(known, trial, epochs)):
        return None
    return FoldTask(trial, len(known.fold_tasks(trial, epochs)), epochs)


def pruned(known: StudySnapshot, trial: int, epochs: int) -> bool:
    """Return True if a trial needs no more folds: a paired test finds the best trial of its rung better.

    Like all decisions, this depends on the known results: if another trial becomes the best, this trial may
    resume.
    """
    best, level = known.rung_leaders.get(epochs), known.search.folds.prune
    values = known.leading_fold_values(trial, epochs)
    if level is None or best is None or len(values) < 2:
        return False
    noise, chosen_from = known.fold_noise(epochs), len(known.complete_trials[epochs])
    return pruning_p_value(values, known.fold_values(best, epochs), chosen_from, noise) < level


def new_trial(known: StudySnapshot, policy: Pruner, propose: TrialSampler) -> tuple[Trial, FoldTask] | None:
    """Return a new trial and its first fold task; None if no point is left."""
    trial = policy.new_trial(known, propose)
    if trial is None:
        return None
    begun = trial.parent.epochs if trial.parent else 0
    first = next(rung for rung in policy.rungs(trial.number, known.epochs) if rung > begun)
    return trial, FoldTask(trial.number, 0, first)


def reason_to_end(known: StudySnapshot) -> str | None:
    """Return the reason why no trial, fold or rung is started, or None; running fold tasks finish."""
    return reason_target_reached(known) or reason_budget_used(known)


def reason_target_reached(known: StudySnapshot) -> str | None:
    """Return a message if the best trial, with all its folds, has reached the target, or else None."""
    objective = known.search.objective
    if objective.target is None or (winner := known.winner) is None:
        return None
    value = known.mean_value(*winner)
    assert value is not None, "a winner has all folds"
    if value > objective.sign * objective.target:
        return None
    return f"trial {winner[0]} has reached {objective.metric} {objective.sign * value:g}"


def reason_budget_used(known: StudySnapshot) -> str | None:
    """Return a message with the budget that the known results have used up, or None."""
    results = known.results.values()
    uses = {
        "hours": lambda: hours(known),
        "core_hours": lambda: resource_hours(results, "cores"),
        "gpu_hours": lambda: resource_hours(results, "gpus"),
    }
    for name, limit in known.search.budget:
        if limit is not None and (used := uses[name]()) >= limit:
            return f"{used:.3g} {name.replace('_', '-')} used"
    return None


def hours(known: StudySnapshot) -> float:
    """Return the hours in which at least one ended fold task ran, its interrupted attempts included.

    Pauses of the whole search do not count.
    """
    spans = chain.from_iterable(result.spans for result in known.results.values())
    return union_length(spans) / SECONDS_PER_HOUR


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of (start, end) intervals."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


class Executor(Protocol):
    """Trains fold tasks and writes their result files."""

    def start(self, fold_task: FoldTask) -> None:
        """Start or resume a fold task; its result is written when it has ended."""

    def wait(self) -> bool:
        """Wait until a fold task may have ended, and return True within seconds of its end.

        Return False if a stop was requested; no fold task is running then.
        """


def run_study(study: Study, executor: Executor, lost: Event | None = None) -> bool:
    """Run a search until no decision is left; return False if the executor stopped earlier.

    At most `study.parallel` started fold tasks are unfinished. Raises UserError if `lost` is set: another process has taken
    over the lease of the search.
    """
    started: set[FoldTask] = set()
    is_outdated = True
    while True:
        if lost and lost.is_set():
            raise UserError(
                "another nnlo process has taken over the lease of this search and continues it; this process exits"
            )
        if is_outdated:
            study.refresh()
        # After a restart with a smaller `parallel`, more decisions may be unfinished than may run.
        for decision in study.unfinished[: study.parallel]:
            if decision.task not in started:
                started.add(decision.task)
                executor.start(decision.task)
        # Tasks are started before the next decision, so that they train while a slow sampler computes.
        # The files of all running fold tasks are looked for after a wait only: with a thousand, this takes longer than a decision.
        is_outdated = study.decide() is None
        if not is_outdated:
            continue
        if not study.unfinished:
            study.drop_checkpoints()
            return True
        if not executor.wait():
            return False


def replay(
    folder: Path, search: SearchConfig, epochs: int, propose: TrialSampler, first: Sequence[SearchPoint] = ()
) -> list[str]:
    """Recompute each decision from the results it was based on; return one message per decision that differs.

    Limits (trials, target, budget) are not checked, because they may have been raised after a decision.
    `first`: points that the first trials may have; searches of version 0.2 began without the experiment's own settings.

    Raises UserError if a file is damaged or missing.
    """
    recorded, pruner = read_trials(folder), build_pruner(search.fidelity)
    found = []
    for decision, known in _history(folder, search, epochs, recorded):
        made = replace(recorded[decision.task.trial], decisions=()), decision.task
        task = next_task(known, pruner)
        new = None if task else new_trial(known, pruner, propose)
        chosen = (replace(recorded[task.trial], decisions=()), task) if task else new
        number = len(known.trials)
        if chosen and not task and made[0].point in first[number : number + 1]:
            chosen = replace(chosen[0], point=made[0].point), chosen[1]
        if chosen != made:
            texts = ["no fold task" if each is None else _described(*each) for each in (made, chosen)]
            found.append(f"decision {decision.number} is {texts[0]}, but the replay gives {texts[1]}")
    return found


def _described(trial: Trial, task: FoldTask) -> str:
    parent = f" from epoch {trial.parent.epochs} of trial {trial.parent.trial}" if trial.parent else ""
    return f"fold {task.fold} of trial {task.trial} ({trial.point}){parent} up to epoch {task.epochs}"


def _history(
    folder: Path, search: SearchConfig, epochs: int, recorded: list[Trial]
) -> Iterator[tuple[SchedulingDecision, StudySnapshot]]:
    """Yield each decision with the snapshot on which it was based. Raises UserError if one of its results is missing."""
    decisions = decisions_in_order(recorded)
    found = [read_result(folder, decision.task) for decision in decisions]
    trials: list[Trial] = []
    known, hidden = StudySnapshot(search, epochs, (), {}), set[int]()
    for decision in decisions:
        # Results that were not known at this decision must not influence the replay.
        before, hidden, results = hidden, set(decision.pending), dict(known.results)
        for number in hidden - before:
            results.pop(decisions[number].task, None)
        for earlier in (
            decisions[number] for number in sorted((before | {decision.number - 1}) - hidden - {-1})
        ):
            result = found[earlier.number]
            if result is None:
                raise UserError(
                    f"{earlier.task.result_path(folder)} is missing, but decision {decision.number} is based on this result"
                )
            results[earlier.task] = result
        known = known.successor(tuple(trials), results)
        yield decision, known
        number = decision.task.trial
        previous = trials[number] if number < len(trials) else replace(recorded[number], decisions=())
        trials[number : number + 1] = [replace(previous, decisions=(*previous.decisions, decision))]
