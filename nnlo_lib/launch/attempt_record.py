"""The record of an ended attempt in state/attempts.jsonl."""

import socket

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.timestamp import timestamp
from nnlo_lib.launch.crash_recovery import read_progress
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.attempts import Attempt, AttemptLog
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

TRAINING_KEY_DIGITS = 12  # of a SHA-256; enough to tell the trainings of a folder apart


def ended_attempt(
    task: Task, number: int, outcome: AttemptOutcome, job: BatchJob | None, started: str, seconds: float
) -> Attempt:
    """Return the record of an attempt that ends now.

    Args:
        task: the task.
        number: number of the attempt, from 1.
        outcome: outcome of the attempt.
        job: batch job of the attempt, if any.
        started: start time, ISO 8601.
        seconds: duration.
    """
    start, reached, saved = read_progress(task.state)
    ended, job_id = timestamp(), job.job_id if job else None
    return Attempt(
        number, started, ended, seconds, socket.gethostname(), job_id, outcome.reason, outcome.error_summary,
        start, reached, saved, task.run.parallel.ranks, _training_key(task),
    )  # fmt: skip


def record_attempt(log: AttemptLog, ended: Attempt) -> None:
    """Append an attempt to the log; if it cannot be written, warn, and let this process count it."""
    try:
        log.append(ended)
    except OSError as error:
        # A full disk must not turn a finished training into a failure.
        logger.warning(f"cannot record attempt {ended.attempt} in state/attempts.jsonl: {error}")
        log.attempts.append(ended)


def _training_key(task: Task) -> str | None:
    """Return the start of the task's fingerprint; None if its data cannot be read, which the ranks report."""
    try:
        return task.fingerprint[:TRAINING_KEY_DIGITS]
    except (OSError, UserError):
        return None
