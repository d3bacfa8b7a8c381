"""One attempt at a task, from start to end: lease, retry policy, ranks, record in state/attempts.jsonl, requeue."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import NamedTuple

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import RESUMABLE_REASONS, USER_REASONS, UserError
from nnlo_lib.core.file_access import refuse_unwritable
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import timestamp
from nnlo_lib.launch.attempt_recovery import correct_last_attempt, leased, read_progress, record_attempt
from nnlo_lib.launch.former_results import exchange_results
from nnlo_lib.launch.launcher import launch_ranks
from nnlo_lib.launch.stop_request import (
    PreemptionPolicy,
    SignalRecorder,
    SignalSource,
    TimeLimit,
    judge_stop,
    requeue_job,
)
from nnlo_lib.state.attempt_outcome import UNKNOWN_END, Action, AttemptOutcome, EndReport, decide
from nnlo_lib.state.attempts import SESSION_VARIABLE, Attempt, read_attempts
from nnlo_lib.state.lease import LeaseHeldError
from nnlo_lib.state.out_of_memory import job_exit_reason
from nnlo_lib.state.training_records import log_error
from nnlo_lib.train.freshness import is_evaluated, status
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

TRAINING_KEY_DIGITS = 12  # of a SHA-256; enough to tell the trainings of a folder apart
NOTIFY_TIMEOUT_S = 10.0  # within the grace time of a preemption
RESERVED_BYTES = 65_536  # for the record of an attempt that fills the disk
LaunchFunction = Callable[[Task, str, TimeLimit, SignalSource, Event], AttemptOutcome]


@dataclass(frozen=True)
class LaunchOptions:
    """Options of an attempt."""

    launcher: str = "mpiexec"
    time_limit_minutes: float | None = None  # time limit of the batch job; None queries the scheduler
    # number of the attempt of Snakemake or of a search driver, from 1; None without either
    attempt_number: int | None = None
    on_preemption: PreemptionPolicy = "exit"
    # wait while another launcher holds the lease, as processes started by Snakemake always do
    wait_for_lease: bool = False


class JobContext(NamedTuple):
    """Batch job of an attempt (or None), its time limit, and the signals sent to this process."""

    job: BatchJob | None
    time_limit: TimeLimit
    signals: SignalSource


def train_task(task: Task, options: LaunchOptions) -> AttemptOutcome:
    """Run the task, log its outcome, and requeue a stopped batch job if the preemption policy says so.

    If the results of the task exist, nothing is run and nothing is written.

    Raises UserError as `run_attempt` does, and if the task would replace a longer training.
    """
    found = status(task).refuse_longer()
    if found.kind == "finished":
        # Of a launcher that was killed in the evaluation, whose attempt is not recorded. The folder may be read-only.
        if task.paths.state.lease.exists():
            with suppress(LeaseHeldError, UserError), leased(task.state, task.run.parallel.ranks):
                pass
        logger.info(finished_note(task))
        return AttemptOutcome("finished")
    refuse_unwritable(task.folder)
    # The handlers come first: a signal must not kill the launcher while it acquires the lease.
    signals = SignalRecorder()
    try:
        job = BatchJob.current()
        outcome = run_attempt(
            task, options, JobContext(job, TimeLimit(options.time_limit_minutes, job), signals)
        )
        if outcome.error:
            level = logging.INFO if outcome.reason in RESUMABLE_REASONS else logging.ERROR
            logger.log(level, outcome.error)
        # Snakemake reports the end of the whole experiment, and a search its own.
        is_reported = outcome.reason == "finished" and SESSION_VARIABLE in os.environ
        if not is_reported and SearchPaths.around(task.folder) is None:
            where = f"{task.experiment}/{task.folder.relative_to(task.folder.parents[1 if task.fold is None else 2])}"
            cause = f": {outcome.error_summary}" if outcome.error_summary else ""
            notify(task.run.observe.notify, outcome.reason, f"{where}: {outcome.reason}{cause}", task.folder)
        if job and outcome.may_requeue and options.on_preemption == "requeue":
            requeue_job(job, signals)
        return replace(outcome, signal=outcome.signal or signals.first)
    finally:
        # An evaluation may follow, which a signal must be able to end.
        signals.restore()


def complete_task(task: Task, options: LaunchOptions) -> AttemptOutcome:
    """Run the task as `train_task` does; then evaluate its model, unless the ranks or an earlier call have done so.

    A failed evaluation changes nothing of the finished training: the next call only evaluates.
    """
    outcome = train_task(task, options)
    if outcome.reason == "finished" and not is_evaluated(task):
        if outcome.signal:  # It stopped the evaluation of the ranks, and would stop this one.
            signal.raise_signal(signal.Signals[outcome.signal])
        # Only here, because it imports torch, which most launchers do not need: rank 0 has evaluated.
        from nnlo_lib.train.evaluation.evaluate import evaluate_model

        evaluate_model(task.run, task.manifest, task.paths.model, task.paths.evaluation)
    return outcome


def notify(command: str | None, event: str, message: str, folder: Path) -> None:
    """Run the user's command `observe.notify`, if there is one; warn if it fails or takes too long.

    `event` says how the training or the experiment ended; `folder` is the one of its results.
    """
    if not command:
        return
    variables = {"NNLO_EVENT": event, "NNLO_MESSAGE": message, "NNLO_FOLDER": str(folder.absolute())}
    problem = ""
    try:
        process = subprocess.Popen(
            command, shell=True, env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        if status := process.wait(NOTIFY_TIMEOUT_S):
            problem = f"status {status}"
    except subprocess.TimeoutExpired:
        problem = f"no end within {NOTIFY_TIMEOUT_S:g} s; it was killed"
        with suppress(OSError):  # a command that runs as another user
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    except OSError as error:
        problem = str(error)
    if problem:
        logger.warning(f"observe.notify: `{command}`: {problem}; the training is not affected")


def finished_note(task: Task) -> str:
    """Return the line that tells a user that a finished training is not repeated."""
    fold = "" if task.fold is None else f" fold {task.fold}"
    return (
        f"already finished: {task.experiment}/{task.name} seed {task.seed}{fold}; results in {task.folder}/; "
        f"to train again, delete this folder or use another `name:`"
    )


def run_attempt(
    task: Task, options: LaunchOptions, context: JobContext, launch: LaunchFunction = launch_ranks
) -> AttemptOutcome:
    """Make one attempt while holding the lease of the task's folder, and return its outcome.

    If no rank starts, the retry policy may allow another attempt at once: MPI can fail to connect ranks on a busy machine.
    On return the lease is released. Each attempt is recorded unless it was not started or the lease was lost.
    The outcome is `preempted` if a signal or the time limit ends the wait for the lease.

    Raises UserError if another launcher holds the lease and this launcher does not wait for it, or if the folder is
    not writable.
    """
    job, limit, signals = context
    is_automatic = options.attempt_number is not None
    # In a batch job without a terminal, too, no user is present to stop the other launcher.
    patient = options.wait_for_lease or is_automatic or (job is not None and not sys.stderr.isatty())
    try:
        with leased(
            task.state, task.run.parallel.ranks, patient, lambda: bool(signals.first) or limit.is_near
        ) as (lease, attempts):  # fmt: skip
            correct_last_attempt(task.state, attempts)
            # The previous owner of the lease may also have finished the task.
            if exchange_results(task).kind == "finished":
                logger.info(finished_note(task))
                return AttemptOutcome("finished")
            attempts = read_attempts(task.state)  # of the results that are now in the folder
            # A requeued job repeats its command with the same attempt number; only the job id shows the retry.
            is_requeued = bool(job and attempts and job.job_id == attempts[-1].job)
            is_retry = is_automatic and (options.attempt_number != 1 or is_requeued)
            # A person who enters the command again always gets an attempt.
            first = 0 if is_retry else len(attempts)
            if useless := _outcome_if_useless(task, attempts[first:], job, is_requeued):
                log_error(task.state, useless)
                return useless
            while True:
                if attempts and is_automatic:  # the log of a job has the output of all attempts
                    last = attempts[-1]
                    logger.info(
                        f"attempt {len(attempts) + 1}; attempt {last.attempt} ended at step {last.reached} ({last.reason})"
                    )
                with suppress(OSError):
                    # Random bytes, because file systems store zeros or repeated bytes without occupying space.
                    task.paths.state.reserve.write_bytes(os.urandom(RESERVED_BYTES))
                _ = task.input_checksums  # read now: a later edit is not the code that trains
                started, clock = timestamp(), time.monotonic()
                outcome = launch(task, options.launcher, limit, signals, lease.lost)
                # Without the lease, this launcher must not append to the attempts of the new owner.
                if lease.lost.is_set():
                    text = (
                        f"{task.folder}: lost the lease of this folder (the folder is missing or not writable, or another nnlo "
                        "process took it over); killed all ranks"
                    )
                    return AttemptOutcome("killed", text)
                with suppress(OSError):
                    task.paths.state.reserve.unlink(missing_ok=True)
                outcome = judge_stop(outcome, job, is_automatic)
                log_error(task.state, outcome)
                seconds = round(time.monotonic() - clock, 3)
                ended = ended_attempt(task, len(attempts) + 1, outcome, job, started, seconds)
                record_attempt(task.state, attempts, ended)
                if not outcome.no_rank_started:
                    return outcome
                decision = decide(attempts[first:], EndReport(runtime=task.run.resources.runtime))
                if decision.action is Action.GIVE_UP:
                    return replace(outcome, error=decision.why)
                logger.info("no rank started; restarting all ranks")
    except LeaseHeldError as error:
        return judge_stop(AttemptOutcome("preempted", str(error), signals.first), job, is_automatic)


def _outcome_if_useless(
    task: Task, before: Sequence[Attempt], job: BatchJob | None, is_requeued: bool
) -> AttemptOutcome | None:
    """Return the outcome if the retry policy gives the task up, or None if the attempt must be made.

    Of the attempts `before`, the last is of the same job if it `is_requeued`; a person may requeue a canceled job.
    """
    if not before:
        return None
    # The record alone is not enough: the launcher did not reach the scheduler, or LSF has given no reason.
    last = BatchJob.from_id(job.scheduler, before[-1].job) if job and not is_requeued else None
    canceled = last is not None and job_exit_reason(last) == "canceled"
    end = JobReport(Fate.CANCELED, "canceled") if canceled else UNKNOWN_END
    decision = decide(before, EndReport(end, runtime=task.run.resources.runtime))
    if decision.action is not Action.GIVE_UP or decision.reason is None:
        return None
    if decision.reason == "canceled":
        text = f"job {before[-1].job} was {decision.why}"
        return None if is_requeued else AttemptOutcome("canceled", text)
    return AttemptOutcome(decision.reason, decision.why, is_user_error=decision.reason in USER_REASONS)


def ended_attempt(
    task: Task, number: int, outcome: AttemptOutcome, job: BatchJob | None, started: str, seconds: float
) -> Attempt:
    """Return the record of an attempt that ends now; `number` is from 1, `started` an ISO 8601 time."""
    start, reached, saved = read_progress(task.state)
    ended, job_id = timestamp(), job.job_id if job else None
    training = None
    with suppress(OSError, UserError):  # data that cannot be read, which the ranks report
        training = task.fingerprint[:TRAINING_KEY_DIGITS]
    return Attempt(
        number, started, ended, seconds, socket.gethostname(), job_id, outcome.reason, outcome.error_summary,
        start, reached, saved, task.run.parallel.ranks, training,
    )  # fmt: skip
