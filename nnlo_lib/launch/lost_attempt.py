"""Record of a batch job that ended before its launcher could write anything."""

from pathlib import Path

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.exit_reason import ExitReason
from nnlo_lib.core.timestamp import timestamp
from nnlo_lib.launch.crash_recovery import read_progress, recover_attempt
from nnlo_lib.state.attempts import Attempt, AttemptLog
from nnlo_lib.state.lease import Lease, LeaseHeldError


def record_lost_attempt(state: Path, job: BatchJob, reason: ExitReason, ranks: int, error: str = "") -> bool:
    """Append an attempt for a job that has left none; return False if it has left one.

    The function changes nothing if a launcher, of this or another job, may hold the lease of the folder.

    Args:
        state: `state/` folder of the run; created if missing.
        job: the job, which has ended.
        reason: why the job ended.
        ranks: number of ranks of the run.
        error: message for the user; by default one from the reason.

    Raises:
        OSError: if the record cannot be written.
    """
    lease = Lease(state)
    try:
        dead = lease.acquire(patient=False, give_up=lambda: True)
    except (LeaseHeldError, UserError):
        return False
    try:
        log = AttemptLog(state)
        if dead and (recovered := recover_attempt(state, dead, ranks, log.attempts)):
            log.append(recovered)
        if log.attempts and log.attempts[-1].job == job.job_id:
            return False
        text = error or f"{reason}: {job.scheduler} job {job.job_id} ended before its first line"
        log.append(_attempt_without_steps(state, job, log.next_number, ranks, reason, text))
        return True
    finally:
        lease.release()


def _attempt_without_steps(
    state: Path, job: BatchJob, number: int, ranks: int, reason: ExitReason, error: str
) -> Attempt:
    now, saved = timestamp(), read_progress(state)[2]
    return Attempt(number, now, now, 0.0, "", job.job_id, reason, error, saved, saved, saved, ranks)
