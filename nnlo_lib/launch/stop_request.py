"""Stops of an attempt: signals, time limit, the scheduler's reason, and the requeue of a preempted job."""

import signal
import time
from dataclasses import replace
from types import FrameType
from typing import Literal, Protocol

from nnlo_lib.batch import BatchJob
from nnlo_lib.core.errors import RESUMABLE_REASONS, handle_stop_signals
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.out_of_memory import is_job_out_of_memory

logger = get_logger(__name__)

PreemptionPolicy = Literal["requeue", "exit"]
# Signals of preemptions, cancellations and closed terminals; the others are warnings before a limit.
CANCEL_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
NEAR_LIMIT_S = 120.0  # half of the limit if that is shorter
SCHEDULER_WARNING_S = 180.0  # Slurm warns up to 30 s early, and counts from the start of the job
# Slurm signals a requeued job within a second. The job must not end before, because LSF may count it as failed.
REQUEUE_TIMEOUT_S = 30
SIGNAL_POLL_INTERVAL_S = 0.1


class SignalSource(Protocol):
    """Source of stop signals; `first` is the name of the first one received, or an empty string."""

    @property
    def first(self) -> str: ...


class SignalRecorder:
    """Recorder of stop signals to this process: the name of the first one, or an empty string, and their number."""

    def __init__(self) -> None:
        self.first, self.received = "", 0
        self._before = handle_stop_signals(self._record)

    def restore(self) -> None:
        """Install the handlers again that were installed before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _record(self, number: int, _: FrameType | None) -> None:
        self.first = self.first or signal.Signals(number).name
        self.received += 1


class TimeLimit:
    """Time limit, counted from the construction of this object; without a batch job there is none.

    `minutes` is the limit; None queries the scheduler.
    """

    def __init__(self, minutes: float | None, job: BatchJob | None) -> None:
        limit_min = (minutes or job.minutes_left()) if job else None
        self.total_seconds = 60 * limit_min if limit_min else float("inf")
        self._end = time.monotonic() + self.total_seconds

    @property
    def seconds_left(self) -> float:
        return self._end - time.monotonic()

    @property
    def is_near(self) -> bool:
        """Whether so little time is left that the attempt must stop."""
        return self.seconds_left < min(NEAR_LIMIT_S, self.total_seconds / 2)

    @property
    def is_in_warning_window(self) -> bool:
        """Whether a signal may be the scheduler's warning of the limit."""
        return self.seconds_left < SCHEDULER_WARNING_S


def judge_stop(outcome: AttemptOutcome, job: BatchJob | None, is_automatic: bool) -> AttemptOutcome:
    """Ask the scheduler why it stopped the ranks; return the outcome with this reason.

    The job may requeue itself in the grace time of a preemption and near its time limit, but not after the scheduler
    has ended the job.

    `is_automatic` is True if a program has started the attempt; a user who stops an attempt needs no protection against
    its repetition.
    """
    if job is None or outcome.reason not in RESUMABLE_REASONS:
        return outcome
    if outcome.signal not in CANCEL_SIGNALS:
        return replace(outcome, may_requeue=True)
    stop = job.stop_decision()
    reason = stop.reason
    if reason == "canceled" and not is_automatic:
        reason = "preempted"
    elif reason == "canceled" and is_job_out_of_memory(job, reason):
        reason = "out of memory"
    error = {
        "out of memory": f"job {job.job_id} exceeded its memory",
        "canceled": f"job {job.job_id} was canceled; run the same command again to resume",
        "killed": f"job {job.job_id} failed: its batch script ended before the training",
    }.get(reason, outcome.error)
    return replace(outcome, reason=reason, error=error, may_requeue=stop.in_grace_time)


def requeue_job(job: BatchJob, signals: SignalRecorder, timeout: float = REQUEUE_TIMEOUT_S) -> None:
    """Requeue this process's job, and wait up to `timeout` seconds until the scheduler signals it, unless it refuses."""
    before, end = signals.received, time.monotonic() + timeout
    if refused := job.requeue():
        logger.info(f"job {job.job_id} could not be requeued ({refused}); it ends and can be submitted again")
        return
    logger.info(f"job {job.job_id} is queued again")
    while signals.received == before and time.monotonic() < end:
        time.sleep(SIGNAL_POLL_INTERVAL_S)
