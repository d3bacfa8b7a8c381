"""Training of the fold tasks of a job, and their results, unless a training was stopped or can be retried."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnlo_lib.checkpoint.checkpoint_manifest import (
    CheckpointManifest,
    checkpoint_folders,
    checkpoint_numbers,
    remove_checkpoint,
)
from nnlo_lib.config import Experiment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import RunPaths, SearchPaths, StatePaths, store_of
from nnlo_lib.core.atomic_file import fsync_folder
from nnlo_lib.core.errors import EXIT_USER_ERROR, STOPPED_REASONS, TRANSIENT_REASONS, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.executors.gpu_slots import reserve_gpus
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.launch.fork_server import can_fork, start_fork_server
from nnlo_lib.launch.stop_request import SignalRecorder
from nnlo_lib.search.study.storage import fold_task_run, read_config, trial_run
from nnlo_lib.search.study.trial import FoldTask, Result, Status, drop_checkpoints, read_result, read_trial
from nnlo_lib.state import attempts
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED, Action, AttemptOutcome, EndReport, decide
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

AttemptFunction = Callable[[Task, LaunchOptions], AttemptOutcome]
IMPORTED = ["torch", "h5py", "mpi4py", "nnlo_lib.train.rank"]  # of the ranks of a job with several fold tasks


def train_trials(folder: Path, fold_tasks: Sequence[FoldTask], options: LaunchOptions) -> int:
    """Train the fold tasks of a job one after another; return its exit status, that of the first without a result.

    The result of the last one is the output of the job. It is trained only if all others have results, so that a job without its
    output starts again and continues. A stop ends the job; nothing else keeps a fold task from its training.
    """
    if len(fold_tasks) == 1:
        return train_trial(folder, fold_tasks[0], options)
    experiment, begun, failed = read_config(folder), time.monotonic(), 0
    signals = SignalRecorder()
    runs = [fold_task_run(experiment, folder, each) for each in fold_tasks]
    is_fork = Path(sys.executable).with_name("socket").exists()  # of a workflow on this machine
    if not is_fork and can_fork(experiment) and all(RunResources(run).nodes == 1 for run in runs):
        sys.executable = str(start_fork_server(IMPORTED) / "python")  # imports torch once for all ranks

    def attempt(task: Task, options: LaunchOptions) -> AttemptOutcome:
        outcome = AttemptOutcome("preempted") if signals.first else train_task(task, options)
        signals.first = signals.first or outcome.signal or ""  # one that came as a training ended
        return outcome

    for fold_task in fold_tasks:
        if signals.first:
            failed = EXIT_PREEMPTED
        if failed == EXIT_PREEMPTED or (failed and fold_task == fold_tasks[-1]):
            break
        name, minutes = f"trial {fold_task.trial}, fold {fold_task.fold}", options.time_limit_minutes
        log = RunPaths(fold_task.run_folder(folder)).trial_log
        logger.info(f"{name} to epoch {fold_task.epochs}: see {log}")
        left = minutes and max(1.0, minutes - (time.monotonic() - begun) / 60)
        try:
            with redirect_output(log):
                status = train_trial(folder, fold_task, replace(options, time_limit_minutes=left), attempt)
        except UserError as error:
            logger.error(f"{name}: {error}")
            status = EXIT_USER_ERROR
        if status:
            logger.warning(f"{name}: no result yet (status {status}); the job continues when it starts again")
        failed = status if status == EXIT_PREEMPTED else failed or status
    signals.restore()
    return failed


def train_trial(
    folder: Path, fold_task: FoldTask, options: LaunchOptions, make_attempt: AttemptFunction = train_task
) -> int:
    """Train a fold task in this process once GPUs are free; return the exit status, 75 if a stop signal arrived before."""
    experiment = read_config(folder)
    with reserve_gpus(fold_task_run(experiment, folder, fold_task)) as has_gpus:
        if not has_gpus:
            return EXIT_PREEMPTED
        return train_fold_task(experiment, folder, fold_task, options, make_attempt)


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
    trial = read_trial(folder, fold_task.trial)
    point, parent = trial.point, trial.parent
    # Outside the `try`: an error of the data set is not a failure of the trial.
    manifest = DataManifest.load(store_of(experiment).manifest)
    status: Status = "unwanted"
    error, search = "", experiment.search
    assert search is not None, "only a search has fold tasks"
    limit, count = search.objective.max_parameters, None
    try:
        run = trial_run(experiment, point)
        if limit is not None or "parameters" in {each.metric for each in search.objectives}:
            from nnlo_lib.train.replica.model_build import count_parameters

            count = count_parameters(run, manifest, experiment.seeds[0])
            if limit is not None and count > limit:
                error = f"{count:,} parameters exceed search.objective.max_parameters ({limit:,})"
    except UserError as raised:
        status, error = "failed", str(raised)
    if error:
        Result(fold_task, status, error=error, point=point).write(folder)
        return 0
    paths, fold = SearchPaths(folder), fold_task.fold
    start = paths.fold(parent.trial, fold).state.rungs / f"{parent.epochs}" if parent else None
    folds, resources, started = search.folds.k, RunResources(run), time.time()
    task = Task(
        experiment.name, f"trial {fold_task.trial}", run, experiment.seeds[0], fold if folds > 1 else None, folds,
        store_of(run).manifest, fold_task.run_folder(folder), fold_task.epochs, start,
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
    population = getattr(search.fidelity, "population", 0)
    if population and outcome.reason == "finished" and fold_task.epochs < run.train.epochs:
        keep_for_children(task)
    Result(
        fold_task, "finished" if outcome.reason == "finished" else "failed", _rows(task, fold_task.epochs, count), outcome.error,
        started, time.time(), resources.cores, resources.gpus, point=point, **interrupted_costs(task.state, started),
    ).write(folder)  # fmt: skip
    # Only a fold that is paused at a rung may be continued; the end of the search removes what a kill here leaves.
    if outcome.reason != "finished" or task.paths.summary.exists():
        drop_checkpoints(task.paths)
    for number in checkpoint_numbers(task.paths.state.checkpoints)[:-1]:
        remove_checkpoint(task.paths.state.checkpoints, number)
    if population:
        drop_outgrown(paths, fold, population)
    return 0


def keep_for_children(task: Task) -> None:
    """Keep the checkpoint at the rung where a task has ended: other trials may start from it when this one trains on."""
    kept = task.paths.state.rungs / f"{task.ends_at}"
    for newest in checkpoint_folders(task.paths.state.checkpoints)[-1:]:
        # The fold may be trained further already, if only the result file of a lower rung was deleted.
        if not kept.exists() and CheckpointManifest.read(newest).epoch == task.ends_at:
            # A process that was killed here has left its copy.
            part = kept.with_name(f"{kept.name}.{os.getpid()}")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(newest, part, copy_function=_link_or_copy)
            fsync_folder(part)
            part.rename(kept)
            fsync_folder(kept.parent)


def _link_or_copy(source: str, target: str) -> None:
    # Files of a checkpoint never change, so a link is as good as a copy, and needs no space.
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def drop_outgrown(paths: SearchPaths, fold: int, population: int) -> None:
    """Remove the checkpoints that were kept at a rung if all members of the population have a result at the next one."""
    ended = [int(path.stem.partition("-")[2]) for path in paths.trials.glob(f"*/fold-{fold}/epochs-*.json")]
    for kept in paths.trials.glob(f"*/fold-{fold}/state/{StatePaths.rungs.name}/*"):
        rung = int(kept.name.partition(".")[0])
        following = min((epochs for epochs in ended if epochs > rung), default=0)
        if ended.count(following) >= population:
            shutil.rmtree(kept, ignore_errors=True)


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


@contextmanager
def redirect_output(path: Path) -> Iterator[None]:
    """Append the output of this process to a file; leave it unchanged if the file cannot be opened."""
    # File descriptors instead of `sys.stdout`, because C libraries write to them directly.
    before = [(stream, os.dup(stream)) for stream in (1, 2)]
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for stream, _ in before:
                os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        # Buffered text belongs to the file, so it is flushed before the descriptors change.
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, kept in before:
            os.dup2(kept, stream)
            os.close(kept)
