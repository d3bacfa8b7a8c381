"""Requeueing of a job by the scheduler after its ranks have saved and stopped."""

import time
from collections.abc import Callable

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.launch.preemption_policy import PreemptionPolicy
from nnlo_lib.state.outcome import AttemptOutcome

logger = get_logger(__name__)

REQUEUE_TIMEOUT_S = 600  # seconds; schedulers requeue within minutes


def requeue_or_wait(
    policy: PreemptionPolicy, requeue: Callable[[BatchJob], str], job: BatchJob, outcome: AttemptOutcome
) -> None:
    """Wait up to REQUEUE_TIMEOUT_S to be requeued; with policy `requeue`, request it first.

    The process waits because the scheduler counts a job that exits in its grace time as failed. The function
    returns at once with policy `exit`, or if the request is refused. After SIGTERM no request is made: either
    the scheduler requeues the job by itself, or a user has canceled it.

    Args:
        policy: preemption policy of the job.
        requeue: requests the requeue; returns the reason of a refusal, or an empty string on success.
        job: this process's batch job.
        outcome: outcome of the attempt, with the signal that stopped it.
    """
    if policy == "requeue" and outcome.signal != "SIGTERM" and (refused := requeue(job)):
        logger.warning(f"job {job.job_id} could not be requeued: {refused}")
    elif policy != "exit":
        logger.info(f"waiting up to {REQUEUE_TIMEOUT_S} s for job {job.job_id} to be requeued")
        time.sleep(REQUEUE_TIMEOUT_S)
