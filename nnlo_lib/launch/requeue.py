"""Requeueing of a job by the scheduler after its ranks have saved and stopped."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.exit_reason import RESUMABLE_REASONS
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.launch.signals import SignalRecorder
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.out_of_memory import is_job_out_of_memory

logger = get_logger(__name__)

# Slurm signals a requeued job within a second. The job must not end before, because LSF may count it as failed.
REQUEUE_TIMEOUT_S = 30
SIGNAL_POLL_INTERVAL_S = 0.1
# Signals of preemptions and cancellations; the others are warnings before the time limit.
STOP_SIGNALS = ("SIGTERM", "SIGINT")


def judge_stop(outcome: AttemptOutcome, job: BatchJob | None, is_automatic: bool) -> AttemptOutcome:
    """Ask the scheduler why it stopped the ranks; return the outcome with this reason.

    The job may requeue itself in the grace time of a preemption and near its time limit, but not after the scheduler
    has ended the job.

    Args:
        outcome: outcome of the attempt.
        job: this process's batch job, if any.
        is_automatic: whether a program has started the attempt; a user who stops an attempt needs no protection
            against its repetition.
    """
    if job is None or outcome.reason not in RESUMABLE_REASONS:
        return outcome
    if outcome.signal not in STOP_SIGNALS:
        return replace(outcome, may_requeue=True)
    stop = job.stop_decision()
    if stop.reason == "canceled" and is_automatic:
        return replace(outcome, **_cancellation(job))
    reason = "preempted" if stop.reason == "canceled" else stop.reason
    return replace(outcome, reason=reason, may_requeue=stop.in_grace_time)


def _cancellation(job: BatchJob) -> dict[str, Any]:
    if is_job_out_of_memory(job, "canceled"):
        return {"reason": "out of memory", "error": f"job {job.job_id} exceeded its memory"}
    return {
        "reason": "canceled",
        "error": f"job {job.job_id} was canceled; run the same command again to resume",
    }


def requeue_job(
    requeue: Callable[[BatchJob], str],
    job: BatchJob,
    signals: SignalRecorder,
    timeout: float = REQUEUE_TIMEOUT_S,
) -> None:
    """Requeue this process's job, and wait until the scheduler signals it; return at once if it refuses.

    Args:
        requeue: requests the requeue; returns the reason of a refusal, or an empty string on success.
        job: this process's batch job.
        signals: signals sent to this process.
        timeout: longest wait for the signal, in seconds.
    """
    before, end = signals.received, time.monotonic() + timeout
    if refused := requeue(job):
        logger.info(f"job {job.job_id} could not be requeued ({refused}); it ends and can be submitted again")
        return
    logger.info(f"job {job.job_id} is queued again")
    while signals.received == before and time.monotonic() < end:
        time.sleep(SIGNAL_POLL_INTERVAL_S)
