"""Trials for reports: objective in its original sign, costs, and both as plain text."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from nnlo_lib.config.search import ObjectiveConfig
from nnlo_lib.core.errors import error_headline
from nnlo_lib.core.text_format import number, plural, table_lines
from nnlo_lib.search.study.snapshot import StudySnapshot, exceeds_time_limit, fold_value, mean_and_error
from nnlo_lib.search.study.trial import FoldTask, Result, SearchPoint, resource_hours

State = Literal["finished", "stopped", "running", "failed", "unwanted"]
# Settings in braces, and numbers. Line numbers such as `file.py:12` are kept because they locate the error.
VARIABLE_PARTS = re.compile(r"\{[^{}]*\}|(?<![\w.:/-])-?\d[\d,.e+-]*")


@dataclass(frozen=True)
class TrialSummary:
    """One trial at its highest rung with a result."""

    number: int
    state: State
    objective: float  # mean over all folds; NaN if unknown
    # number of folds from which the mean over all folds was estimated; 0: it is the mean of all folds
    adjusted_from: int
    standard_error: float  # standard error of the mean over folds; NaN if unknown
    folds: tuple[float, ...]  # value of each fold with a result
    fold_numbers: tuple[int, ...]  # number of each of these folds
    # the highest number of epochs of a fold from which the objective was computed; of any fold, if the trial has no
    # objective
    epochs: int
    selected_epochs: tuple[int, ...]  # number of epochs that each of these folds selects
    seconds: float  # sum over all fold tasks
    core_hours: float
    gpu_hours: float
    point: SearchPoint
    reason: str  # reason why the trial failed or is unwanted, as one line, or an empty string
    others: tuple[float, ...] = ()  # means of the further objectives; empty if the objective is unknown
    on_front: bool = False  # on the Pareto front of several objectives

    @property
    def retrained_epochs(self) -> int:
        """Number of epochs for which the trial is retrained if it is the best one: the mean of those of its folds."""
        # Rounds halves up; Python's `round` would round 2.5 down to 2.
        return max(1, int(fmean(self.selected_epochs) + 0.5))


def summarize_trial(known: StudySnapshot, trial: int) -> TrialSummary:
    """Return the summary of a trial."""
    objective, results = known.search.objective, _results(known, trial)
    state, reason = _state(known, trial, results)
    last = _known_results(known, known.fold_tasks(trial, objective_rung(known, trial)))
    values = {result.fold_task.fold: fold_value(objective, result) for result in last}
    folds = tuple(objective.sign * each if math.isfinite(each) else math.nan for each in values.values())
    is_valid = bool(folds) and state not in ("failed", "unwanted")
    mean = math.nan
    if is_valid:
        mean = objective.sign * known.fold_effects(last[0].fold_task.epochs).adjusted_mean(values)
    error = mean_and_error(folds)[1] if is_valid else math.nan
    vector = known.mean_values(trial, objective_rung(known, trial)) if is_valid else None
    others = tuple(
        each.sign * value if math.isfinite(value) else math.nan
        for each, value in zip(known.search.objectives[1:], (vector or ())[1:], strict=False)
    )
    selected = tuple(_selected_epochs(known, result) for result in last)
    return TrialSummary(
        trial, state, mean, len(last) if is_valid and len(last) < known.search.folds.k else 0, error, folds, tuple(values),
        max((len(each.rows) for each in (last if is_valid else results)), default=0), selected,
        sum(each.seconds for each in results), resource_hours(results, "cores"), resource_hours(results, "gpus"),
        known.trials[trial].point, reason, others, trial in known.front,
    )  # fmt: skip


def _state(known: StudySnapshot, trial: int, results: Sequence[Result]) -> tuple[State, str]:
    for result in results:
        if result.status != "finished":
            return result.status, error_headline(result.error)
    uncounted = [each for each in results if math.isinf(fold_value(known.search.objective, each))]
    if uncounted and known.has_failed(trial):
        return _uncounted(known.search.objective, uncounted[0])
    # Above a rung within the time limit, whose value counts.
    reason = _uncounted(known.search.objective, uncounted[0])[1] if uncounted else ""
    decisions = known.trials[trial].decisions
    if len(results) < len(decisions):
        return "running", reason
    top = known.rungs(trial)[-1]
    complete = (
        top >= known.epochs and len(known.fold_tasks(trial, top)) == known.search.folds.k and not uncounted
    )
    # `stopped` is not final: later results may promote the trial or start its next fold.
    return ("finished" if complete else "stopped"), reason


def _uncounted(objective: ObjectiveConfig, result: Result) -> tuple[State, str]:
    """Return the state of a finished training that does not count, and the reason."""
    seconds = result.rows[-1]["seconds"] if result.rows else 0.0
    if objective.max_seconds is not None and seconds > objective.max_seconds:
        return (
            "unwanted",
            f"training took {seconds:.0f} s, more than search.objective.max_seconds ({objective.max_seconds:g})",
        )
    return "failed", f"{objective.metric} is not a finite number"


def objective_rung(known: StudySnapshot, trial: int) -> int:
    """Return the rung that gives the objective: the highest complete one, or else the highest with a result; 0 without one."""
    rungs = list(reversed(known.rungs(trial)))
    complete = [epochs for epochs in rungs if known.is_complete(trial, epochs)]
    partial = [epochs for epochs in rungs if known.fold_values(trial, epochs)]
    return (complete or partial or [0])[0]


def _selected_epochs(known: StudySnapshot, result: Result) -> int:
    """Return the number of epochs that a fold selects.

    If the last epoch counts: the epochs of a full training, or the trained epochs if the fold stopped early. If the
    best epoch counts: the best epoch, or all trained epochs if no value is finite.
    """
    objective, task = known.search.objective, result.fold_task
    if objective.epoch == "last":
        exceeds_limit_above = any(
            each.fold_task.epochs > task.epochs and exceeds_time_limit(objective, each)
            for each in _results(known, task.trial)
        )
        return len(result.rows) if len(result.rows) < task.epochs or exceeds_limit_above else known.epochs
    values = {
        row["epoch"]: objective.sign * value
        for row in known.own_result(task).rows
        if (value := row.get(objective.metric)) is not None and math.isfinite(value)
    }
    return int(min(values, key=values.__getitem__)) if values else len(result.rows)


def _results(known: StudySnapshot, trial: int) -> list[Result]:
    return _known_results(known, sorted(decision.task for decision in known.trials[trial].decisions))


def _known_results(known: StudySnapshot, fold_tasks: Sequence[FoldTask]) -> list[Result]:
    return [known.results[fold_task] for fold_task in fold_tasks if fold_task in known.results]


def error_signature(reason: str) -> str:
    """Return the reason without settings and numbers, so that equal errors have equal signatures."""
    shortened = VARIABLE_PARTS.sub("", reason)
    # Repeated, because the pattern removes only the innermost of nested braces.
    return error_signature(shortened) if shortened != reason else shortened


def format_objective(objective: ObjectiveConfig, row: TrialSummary) -> str:
    """Return the objective of a trial as text: `val_loss 0.1234 +- 0.0100 over 3 folds`."""
    folds = f" over {len(row.folds)} folds" if len(row.folds) > 1 else ""
    folds = f" ({adjustment_text(row)})" if row.adjusted_from else folds
    others = zip(objective.others or (), row.others, strict=False)
    more = "".join(f", {other.metric} {format_mean(value)}" for other, value in others)
    return f"{objective.metric} {with_error(row.objective, row.standard_error)}{folds}{more}"


def describe_epochs(objective: ObjectiveConfig, best: TrialSummary) -> str:
    """Return sentences on the epochs that gave the value of the best trial; empty if the last one counts."""
    if objective.epoch == "last":
        return ""
    low, high = min(best.selected_epochs), max(best.selected_epochs)
    doubt = f" The folds do not agree: one stops at epoch {low}, another at epoch {high}."
    chosen = ", ".join(map(str, best.selected_epochs))
    retrained = plural(best.retrained_epochs, "epoch")
    text = f"The value of a fold is that of its best epoch ({chosen} in the best trial); the best trial is retrained for their mean, {retrained}."
    return text + doubt if high >= 2 * low + 2 else text


def adjustment_text(row: TrialSummary) -> str:
    """Return the number of folds from which the mean over all folds was estimated, as text; empty for all folds."""
    several = "s" * (row.adjusted_from > 1)
    return f"adjusted, from {row.adjusted_from} fold{several}" if row.adjusted_from else ""


def format_selection(known: StudySnapshot) -> str:
    """Return the candidates for the best trial as text: `selected from 2 trials trained for 9 epochs`.

    Return an empty string if the candidates are all trials that did not fail, with the same number of epochs.
    """
    epochs = known.contenders.values()
    if not epochs:
        return "selected from trials with incomplete folds"
    low, high = min(epochs), max(epochs)
    valid = sum(not known.has_failed(trial.number) for trial in known.trials)
    if len(epochs) == valid and low == high:
        return ""
    span = f"{high}" if low == high else f"{low} to {high}"
    return f"selected from {plural(len(epochs), 'trial')} trained for {span} epoch{'s' * (high > 1)}"


def format_front(known: StudySnapshot) -> str:
    """Return the choice of the best trial from the Pareto front as text; an empty string for a single objective."""
    if not known.front:
        return ""
    metrics, choose = [each.metric for each in known.search.objectives], known.search.choose
    by = f"with the best {metrics[0]}" if choose == "first" else "nearest to the best value of each"
    front = f"{plural(len(known.front), 'trial')} on the Pareto front of {', '.join(metrics)}"
    return f"chosen from {front} (column front of trials.csv): {by} (search.choose: {choose})"


def with_error(mean: float, error: float) -> str:
    """Return a mean as text, with its standard error if that is finite; `-` if the mean is not finite."""
    if not math.isfinite(mean):
        return "-"
    return f"{mean:.5g}" + (f" +- {error:.2g}" if math.isfinite(error) else "")


def format_mean(value: float) -> str:
    """Return the mean of a further objective as text, such as a number of parameters or of seconds."""
    return f"{value:,.0f}" if value.is_integer() else number(value)


def format_point_lines(point: SearchPoint) -> list[str]:
    """Return a point as text lines, one per key."""
    return list(table_lines([(key, format_value(value)) for key, value in point.items()], left=(0, 1)))


def format_value(value: object) -> str:
    """Return the value of a key as text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.5g}" if isinstance(value, float) else str(value)
