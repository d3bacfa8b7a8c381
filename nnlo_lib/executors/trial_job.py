"""Training of one fold task, and its result, unless the training was stopped or can be retried."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import store_of
from nnlo_lib.core.errors import STOPPED_REASONS, TRANSIENT_REASONS, UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.executors.gpu_slots import reserve_gpus
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.search.study.storage import fold_task_run, read_config, trial_run
from nnlo_lib.search.study.trial import FoldTask, Result, Status, read_result, read_trial
from nnlo_lib.state import attempts
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED, Action, AttemptOutcome, EndReport, decide
from nnlo_lib.train.task import Task

AttemptFunction = Callable[[Task, LaunchOptions], AttemptOutcome]


def train_trial(folder: Path, fold_task: FoldTask, launch_options: LaunchOptions) -> int:
    """Train a fold task in this process once GPUs are free; return the exit status, 75 if a stop signal arrived before."""
    experiment = read_config(folder)
    with reserve_gpus(fold_task_run(experiment, folder, fold_task)) as has_gpus:
        return train_fold_task(experiment, folder, fold_task, launch_options) if has_gpus else EXIT_PREEMPTED


def train_fold_task(
    experiment: Experiment,
    folder: Path,
    fold_task: FoldTask,
    launch_options: LaunchOptions,
    make_attempt: AttemptFunction = train_task,
) -> int:
    """Train a fold task; return 0 if its result is on disk, otherwise the exit status of the attempt.

    The status is 75 if the training saved and stopped, and 1 if it was canceled or can be retried: after the disk was
    full, or with more memory. A failure that would happen again is written as a result.

    Raises UserError if another process trains the fold task.
    """
    if read_result(folder, fold_task):
        return 0
    point = read_trial(folder, fold_task.trial).point
    # Outside the `try`: an error of the data set is not a failure of the trial.
    manifest = DataManifest.load(store_of(experiment).manifest)
    error, too_large, search = "", "", experiment.search
    assert search is not None, "only a search has fold tasks"
    limit, count = search.objective.max_parameters, None
    try:
        run = trial_run(experiment, point)
        if limit is not None or "parameters" in {each.metric for each in search.objectives}:
            from nnlo_lib.train.replica.model_build import count_parameters

            count = count_parameters(run, manifest, experiment.seeds[0])
    except UserError as raised:
        error = str(raised)
    if count is not None and limit is not None and count > limit:
        too_large = f"{count:,} parameters exceed search.objective.max_parameters ({limit:,})"
    if too_large or error:
        status: Status = "unwanted" if too_large else "failed"
        Result(fold_task, status, error=too_large or error, point=point).write(folder)
        return 0
    folds, resources, started = search.folds.k, RunResources(run), time.time()
    task = Task(
        experiment.name, f"trial {fold_task.trial}", run, experiment.seeds[0], fold_task.fold if folds > 1 else None, folds,
        store_of(run).manifest, fold_task.run_folder(folder), fold_task.epochs,
    )  # fmt: skip
    outcome = _attempt_with_retries(task, launch_options, make_attempt)
    # Another job, for whose lease the attempt waited, may have written the result.
    if read_result(folder, fold_task):
        return 0
    # Only a scheduler, which numbers the attempts, can start the task again with more memory.
    may_get_memory = (
        outcome.reason == "out of memory"
        and launch_options.attempt_number is not None
        and decide(attempts.read_attempts(task.state), EndReport()).action is Action.RETRY
    )
    if may_get_memory or outcome.reason in (*STOPPED_REASONS, "disk full"):
        return outcome.exit_status
    Result(
        fold_task, "finished" if outcome.reason == "finished" else "failed", _rows(task, fold_task.epochs, count), outcome.error,
        started, time.time(), resources.cores, resources.gpus, point=point, **interrupted_costs(task.state, started),
    ).write(folder)  # fmt: skip
    return 0


def _attempt_with_retries(
    task: Task, launch_options: LaunchOptions, make_attempt: AttemptFunction
) -> AttemptOutcome:
    """Attempt the task, and again after transient failures as long as the retry policy allows it; return the last outcome."""
    first = known = len(attempts.read_attempts(task.state))
    while True:
        outcome = make_attempt(task, launch_options)
        record = attempts.read_attempts(task.state)
        may_retry = decide(record[first:], EndReport()).action is Action.RETRY
        # Without a new record, for example on a full disk, nothing limits the attempts.
        if outcome.reason not in TRANSIENT_REASONS or len(record) == known or not may_retry:
            return outcome
        known = len(record)


def _rows(task: Task, epochs: int, parameters: int | None) -> tuple[dict[str, float], ...]:
    """Return the history up to an epoch, with the number of model parameters if it is known."""
    try:
        lines = task.paths.state.history.read_text().splitlines()
    except FileNotFoundError:
        return ()
    # The fold may be trained further already, if only the result file of a lower rung was deleted.
    rows = [json.loads(line) for line in lines]
    more = {} if parameters is None else {"parameters": parameters}
    return tuple(row | more for row in rows if row["epoch"] <= epochs)


def interrupted_costs(state: Path, started: float) -> dict[str, Any]:
    """Return the fields `interrupted` and `earlier` of the result of a task whose last training began at `started`.

    `state`: state folder of the task; `started`: in seconds since 1970.
    """
    earlier = attempts.interrupted_attempts(attempts.read_attempts(state), started)
    return {
        "interrupted": sum(each.seconds for each in earlier),
        "earlier": tuple(each.span for each in earlier),
    }
