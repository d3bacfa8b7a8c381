"""Replay of a search: recompute every decision and compare it with the recorded one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.study import TrialSampler, new_trial, next_task
from nnlo_lib.search.study.trial import (
    FoldTask,
    SchedulingDecision,
    SearchPoint,
    Trial,
    decisions_in_order,
    read_result,
    read_trials,
)


def replay(folder: Path, search: SearchConfig, epochs: int, propose: TrialSampler) -> list[str]:
    """Recompute each decision from the results it was based on; return one message per decision that differs.

    Limits (trials, target, budget) are not checked, because they may have been raised after a decision.

    Raises UserError if a file is damaged or missing.
    """
    recorded, pruner = read_trials(folder), build_pruner(search.fidelity)
    found = []
    for decision, known in _history(folder, search, epochs, recorded):
        fold_task, point = decision.task, recorded[decision.task.trial].point
        task = next_task(known, pruner)
        chosen = (task, recorded[task.trial].point) if task else new_trial(known, pruner, propose)
        if chosen != (fold_task, point):
            found.append(
                f"decision {decision.number} is {_text(fold_task, point)}, but the replay gives {_text(*chosen or ())}"
            )
    return found


def _history(
    folder: Path, search: SearchConfig, epochs: int, recorded: list[Trial]
) -> Iterator[tuple[SchedulingDecision, StudySnapshot]]:
    """Yield each decision with the snapshot on which it was based. Raises UserError if one of its results is missing."""
    decisions = decisions_in_order(recorded)
    found = [read_result(folder, decision.task) for decision in decisions]
    trials: list[Trial] = []
    memo: dict[Any, float] = {}
    for decision in decisions:
        # Results that were not known at this decision must not influence the replay.
        results = {}
        for earlier, result in zip(decisions[: decision.number], found, strict=False):
            if earlier.number in decision.pending:
                continue
            if result is None:
                raise UserError(
                    f"{earlier.task.result_path(folder)} is missing, but decision {decision.number} is based on this result"
                )
            results[earlier.task] = result
        yield decision, StudySnapshot(search, epochs, trials, results, memo)
        number = decision.task.trial
        previous = trials[number] if number < len(trials) else Trial(number, recorded[number].point)
        trials[number : number + 1] = [replace(previous, decisions=(*previous.decisions, decision))]


def _text(fold_task: FoldTask | None = None, point: SearchPoint | None = None) -> str:
    if fold_task is None:
        return "no fold task"
    return f"fold {fold_task.fold} of trial {fold_task.trial} ({point}) up to epoch {fold_task.epochs}"
