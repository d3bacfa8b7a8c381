"""One attempt at a task, from start to end: lease, retry policy, ranks, record, requeue.

train_task -> run_attempt -> launcher.launch_ranks, which starts the ranks.
"""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.exit_reason import RESUMABLE_REASONS
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.timestamp import timestamp
from nnlo_lib.launch.attempt_record import ended_attempt, record_attempt
from nnlo_lib.launch.crash_recovery import recover_attempt
from nnlo_lib.launch.earlier_training import finished_note, is_finished, needs_training
from nnlo_lib.launch.killed_attempt import correct_last_attempt
from nnlo_lib.launch.launcher import launch_ranks
from nnlo_lib.launch.preemption_policy import PreemptionPolicy
from nnlo_lib.launch.requeue import judge_stop, requeue_job
from nnlo_lib.launch.signals import SignalRecorder, SignalSource
from nnlo_lib.launch.time_limit import TimeLimit
from nnlo_lib.state.attempts import Attempt, AttemptLog
from nnlo_lib.state.lease import Lease, LeaseHeldError
from nnlo_lib.state.out_of_memory import job_exit_reason
from nnlo_lib.state.outcome import AttemptOutcome
from nnlo_lib.state.retry_policy import reason_not_to_retry
from nnlo_lib.state.run_log import log_error
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

LaunchFunction = Callable[[Task, str, TimeLimit, SignalSource, Event], AttemptOutcome]


@dataclass(frozen=True)
class LaunchOptions:
    """Options of an attempt.

    Attributes:
        launcher: command that starts the ranks.
        time_limit_minutes: time limit of the batch job; None queries the scheduler.
        attempt_number: number of the attempt of Snakemake or of a search driver, from 1; None without either.
        on_preemption: what the job does after its ranks have saved and stopped.
        requeue: requeues a job; returns the reason of a refusal, or an empty string on success.
        wait_for_lease: wait while another launcher holds the lease, as processes started by Snakemake always do.
    """

    launcher: str = "mpiexec"
    time_limit_minutes: float | None = None
    attempt_number: int | None = None
    on_preemption: PreemptionPolicy = "exit"
    requeue: Callable[[BatchJob], str] = BatchJob.requeue
    wait_for_lease: bool = False


@dataclass(frozen=True)
class JobContext:
    """The batch job of an attempt (or None), its time limit, and the signals sent to this process."""

    job: BatchJob | None
    time_limit: TimeLimit
    signals: SignalSource


def train_task(task: Task, options: LaunchOptions) -> AttemptOutcome:
    """Run the task, log its outcome, and requeue a stopped batch job if the preemption policy says so.

    If the results of the task exist, nothing is run and nothing is written.

    Raises UserError as `run_attempt` and `refuse_shorter_training` do.
    """
    if not needs_training(task):
        logger.info(finished_note(task))
        return AttemptOutcome("finished")
    # The handlers come first: a signal must not kill the launcher while it acquires the lease.
    signals = SignalRecorder()
    try:
        return _train_and_requeue(task, options, signals)
    finally:
        # An evaluation may follow, which a signal must be able to end.
        signals.restore()


def _train_and_requeue(task: Task, options: LaunchOptions, signals: SignalRecorder) -> AttemptOutcome:
    job = BatchJob.current()
    outcome = run_attempt(task, options, JobContext(job, TimeLimit(options.time_limit_minutes, job), signals))
    resumable = outcome.reason in RESUMABLE_REASONS
    if outcome.error:
        logger.log(logging.INFO if resumable else logging.ERROR, outcome.error)
    if job and outcome.may_requeue and options.on_preemption == "requeue":
        requeue_job(options.requeue, job, signals)
    return outcome


def run_attempt(
    task: Task, options: LaunchOptions, context: JobContext, launch: LaunchFunction = launch_ranks
) -> AttemptOutcome:
    """Make one attempt while holding the lease of the task's folder, and return its outcome.

    On return the lease is released. The attempt is recorded unless it was not started or the lease was lost.
    The outcome is `preempted` if a signal or the time limit ends the wait for the lease.

    Args:
        task: the task.
        options: options of the attempt.
        context: batch job, time limit and signals.
        launch: starts the ranks and returns the outcome.

    Raises:
        UserError: if another launcher holds the lease and this launcher does not wait for it, or if the folder
            is not writable.
    """
    lease, signals = Lease(task.state), context.signals
    try:
        dead = lease.acquire(
            _waits_for_lease(options, context), lambda: bool(signals.first) or context.time_limit.is_near
        )
    except LeaseHeldError as error:
        stopped = AttemptOutcome("preempted", str(error), signals.first)
        return judge_stop(stopped, context.job, options.attempt_number is not None)
    try:
        # Read only now: the lease's previous owner may have appended an attempt until it released the lease.
        log = AttemptLog(task.state)
        if dead and (recovered := recover_attempt(task.state, dead, task.run.parallel.ranks, log.attempts)):
            record_attempt(log, recovered)
        correct_last_attempt(log)
        # The previous owner of the lease may also have finished the task.
        if is_finished(task):
            logger.info(finished_note(task))
            return AttemptOutcome("finished")
        if predicted := _predicted_outcome(task, log.attempts, options, context.job):
            log_error(task.state, predicted)
            return predicted
        return _launch_and_record(task, log, options, context, lease, launch)
    finally:
        lease.release()


def _waits_for_lease(options: LaunchOptions, context: JobContext) -> bool:
    """Return True if the launcher waits for the lease: by option, under Snakemake, or in a batch job.

    In these cases no user is present to stop the other launcher; a batch job with a terminal does not wait.
    """
    unwatched_job = context.job is not None and not sys.stderr.isatty()
    return options.wait_for_lease or options.attempt_number is not None or unwatched_job


def _predicted_outcome(
    task: Task, before: Sequence[Attempt], options: LaunchOptions, job: BatchJob | None
) -> AttemptOutcome | None:
    """Return the outcome if another attempt is useless, or None if the attempt must be made.

    Only retries with an attempt number are checked: attempts after the first, and requeued jobs.

    Args:
        task: the task.
        before: recorded attempts in their order.
        options: options of the attempt.
        job: batch job of this process, or None.
    """
    if not before or options.attempt_number is None:
        return None
    # A requeued job repeats its command with the same attempt number; only the job id shows the retry.
    requeued = job is not None and job.job_id == before[-1].job
    if options.attempt_number == 1 and not requeued:
        return None
    return reason_not_to_retry(before, task.run.resources.runtime) or (
        None if requeued else _outcome_if_canceled(before[-1], job)
    )


def _outcome_if_canceled(last: Attempt, job: BatchJob | None) -> AttemptOutcome | None:
    """Return the outcome `canceled` if a user canceled the job of the last attempt, else None."""
    before = BatchJob.from_id(job.scheduler, last.job) if job else None
    # The record alone is not enough: the launcher did not reach the scheduler, or LSF has given no reason.
    if last.reason != "canceled" and (before is None or job_exit_reason(before) != "canceled"):
        return None
    return AttemptOutcome(
        "canceled", f"job {last.job} was canceled and is not retried; run the same command again to resume"
    )


def _launch_and_record(
    task: Task,
    log: AttemptLog,
    options: LaunchOptions,
    context: JobContext,
    lease: Lease,
    launch: LaunchFunction,
) -> AttemptOutcome:
    if log.attempts and options.attempt_number is not None:  # the log of a job has the output of all attempts
        last = log.attempts[-1]
        logger.info(
            f"attempt {log.next_number}; attempt {last.attempt} ended at step {last.reached} ({last.reason})"
        )
    log.reserve_space()
    _ = task.input_checksums  # read now: a later edit is not the code that trains
    started, clock = timestamp(), time.monotonic()
    outcome = launch(task, options.launcher, context.time_limit, context.signals, lease.lost)
    # Without the lease, this launcher must not append to the attempts of the new owner.
    if lease.lost.is_set():
        text = (
            f"{task.folder}: lost the lease of this folder (the folder is missing or not writable, or another nnlo process "
            "took it over); killed all ranks"
        )
        return AttemptOutcome("killed", text)
    log.release_space()
    outcome = judge_stop(outcome, context.job, options.attempt_number is not None)
    log_error(task.state, outcome)
    seconds = round(time.monotonic() - clock, 3)
    record_attempt(log, ended_attempt(task, log.next_number, outcome, context.job, started, seconds))
    return outcome
