"""What a launcher does after its ranks have saved and stopped, so that the scheduler starts the job again."""

import time
from collections.abc import Callable

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.launch.preemption_policy import PreemptionPolicy
from nnlo_lib.state.outcome import AttemptOutcome

logger = get_logger(__name__)

REQUEUE_TIMEOUT_S = 600  # seconds


def requeue_or_wait(
    policy: PreemptionPolicy, requeue: Callable[[BatchJob], str], job: BatchJob, outcome: AttemptOutcome
) -> None:
    """Wait to be requeued, for a while, as a job that exits in its grace time has failed; or ask for it first.

    Who was sent TERM needs not ask: the scheduler requeues the job, or a person has cancelled it.
    """
    if policy == "requeue" and outcome.signal != "SIGTERM" and (refused := requeue(job)):
        logger.warning(f"job {job.job_id} could not be requeued: {refused}")
    elif policy != "exit":
        logger.info(f"waiting for job {job.job_id} to be requeued")
        time.sleep(REQUEUE_TIMEOUT_S)
