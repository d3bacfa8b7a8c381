"""The reason why an attempt was killed, from all that the scheduler has written about its job.

A launcher can record `killed` before Slurm writes that it has killed a rank for its memory.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.state.attempts import Attempt, AttemptLog
from nnlo_lib.state.out_of_memory import job_exit_reason

logger = get_logger(__name__)

# The ranks on other nodes report a lost peer if the killed rank leaves no message.
VAGUE_REASONS = ("killed", "peer lost")
# LSF stops a job above its memory limit with SIGTERM, and gives the reason only after the end of the job.
VAGUE_LSF_REASONS = (*VAGUE_REASONS, "preempted")


def corrected_attempt(attempt: Attempt) -> Attempt:
    """Return the attempt, with the reason `out of memory` if its job reports this now."""
    job = BatchJob.of_this_site(attempt.job)
    if job is None or attempt.reason not in (VAGUE_LSF_REASONS if job.scheduler == "lsf" else VAGUE_REASONS):
        return attempt
    if job_exit_reason(job) != "out of memory":
        return attempt
    return replace(attempt, reason="out of memory", error=f"job {attempt.job} exceeded its memory")


def correct_last(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts, the last of which is corrected; earlier ones were corrected when the next one started."""
    return [*attempts[:-1], *map(corrected_attempt, attempts[-1:])]


def correct_last_attempt(log: AttemptLog) -> None:
    """Correct the last recorded attempt on disk; the caller holds the lease."""
    for before, after in zip(log.attempts[-1:], correct_last(log.attempts)[-1:], strict=True):
        if after != before:
            logger.info(f"attempt {before.attempt} ran out of memory: {before.reason} is corrected")
            with suppress(OSError):
                log.replace_last(after)
