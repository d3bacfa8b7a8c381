"""Summary of a trial for reports: the objective in its original sign, and the costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.search.study.objective import fold_value, mean_and_error
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask, Result, SearchPoint

State = Literal["finished", "stopped", "running", "failed", "unwanted"]


@dataclass(frozen=True)
class TrialSummary:
    """One trial at its highest rung with a result.

    Attributes:
        objective: mean over folds; NaN if unknown.
        standard_error: standard error of the mean over folds; NaN if unknown.
        folds: value of each fold with a result.
        epochs: the highest number of epochs that a fold was trained for.
        selected_epochs: number of epochs that each fold selects.
        seconds: sum over all fold tasks.
        reason: reason why the trial failed or is unwanted, or an empty string.
    """

    number: int
    state: State
    objective: float
    standard_error: float
    folds: tuple[float, ...]
    epochs: int
    selected_epochs: tuple[int, ...]
    seconds: float
    core_hours: float
    gpu_hours: float
    point: SearchPoint
    reason: str


def summarize_trial(known: StudySnapshot, trial: int) -> TrialSummary:
    """Return the summary of a trial."""
    objective, results = known.search.objective, _results(known, trial)
    state, reason = _state(known, trial, results)
    last = _last_results(known, trial)
    folds = tuple(_signed(objective, fold_value(objective, result)) for result in last)
    mean, error = mean_and_error(folds) if folds and state not in ("failed", "unwanted") else (math.nan,) * 2
    selected = tuple(_selected_epochs(known, result) for result in last if result.rows)
    return TrialSummary(
        trial, state, mean, error, folds, max((len(each.rows) for each in results), default=0), selected,
        sum(each.seconds for each in results), _hours(results, "cores"), _hours(results, "gpus"),
        known.trials[trial].point, reason,
    )  # fmt: skip


def _selected_epochs(known: StudySnapshot, result: Result) -> int:
    """Return the number of epochs that a fold selects.

    If the best epoch counts: the best epoch, or all trained epochs if no value is finite. If the last epoch
    counts: the epochs of a full training, or the trained epochs if the fold stopped early.
    """
    objective = known.search.objective
    values = {
        row["epoch"]: objective.sign * (row.get(objective.metric) or 0.0)
        for row in result.rows
        if _is_measured(objective, row)
    }
    if objective.epoch == "last":
        return len(result.rows) if len(result.rows) < result.fold_task.epochs else known.epochs
    if not values:
        return len(result.rows)
    return int(min(values, key=values.__getitem__))


def _last_results(known: StudySnapshot, trial: int) -> list[Result]:
    """Return the results of the highest complete rung, or else of the highest rung with a result, by fold."""
    rungs = [(epochs, known.fold_tasks(trial, epochs)) for epochs in reversed(known.rungs(trial))]
    complete = [fold_tasks for epochs, fold_tasks in rungs if known.is_complete(trial, epochs)]
    partial = [fold_tasks for _, fold_tasks in rungs if _known_results(known, fold_tasks)]
    return _known_results(known, (complete or partial or [[]])[0])


def _is_measured(objective: ObjectiveConfig, row: dict[str, float]) -> bool:
    value = row.get(objective.metric)
    return value is not None and math.isfinite(value)


def _results(known: StudySnapshot, trial: int) -> list[Result]:
    return _known_results(known, sorted(decision.task for decision in known.trials[trial].decisions))


def _known_results(known: StudySnapshot, fold_tasks: Sequence[FoldTask]) -> list[Result]:
    return [known.results[fold_task] for fold_task in fold_tasks if fold_task in known.results]


def _state(known: StudySnapshot, trial: int, results: Sequence[Result]) -> tuple[State, str]:
    for result in results:
        if result.status != "finished":
            return result.status, result.error
    for result in results:
        if math.isinf(fold_value(known.search.objective, result)):
            return _uncounted(known.search.objective, result)
    decisions = known.trials[trial].decisions
    if len(results) < len(decisions):
        return "running", ""
    top = known.rungs(trial)[-1]
    complete = top >= known.epochs and len(known.fold_tasks(trial, top)) == known.search.folds.k
    # `stopped` is not final: later results may promote the trial or start its next fold.
    return ("finished" if complete else "stopped"), ""


def _uncounted(objective: ObjectiveConfig, result: Result) -> tuple[State, str]:
    """Return the state of a finished training that does not count, and the reason."""
    seconds = result.rows[-1]["seconds"] if result.rows else 0.0
    if objective.max_seconds is not None and seconds > objective.max_seconds:
        return (
            "unwanted",
            f"training took {seconds:.0f} s, more than search.objective.max_seconds ({objective.max_seconds:g})",
        )
    return "failed", f"{objective.metric} is not a finite number"


def _hours(results: Sequence[Result], what: Literal["cores", "gpus"]) -> float:
    return sum(float(result.seconds * getattr(result, what)) for result in results) / 3600


def _signed(objective: ObjectiveConfig, value: float) -> float:
    return objective.sign * value if math.isfinite(value) else math.nan
