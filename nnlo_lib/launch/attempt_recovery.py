"""Attempts that ended without a record, or with a vague one: their end as the scheduler and the state folder report it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nnlo_lib.batch import BatchJob
from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest, checkpoint_folders
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.errors import ExitReason, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import timestamp
from nnlo_lib.state.attempts import Attempt, AttemptLog, read_attempts
from nnlo_lib.state.lease import Lease, LeaseHeldError, OwnerMonitor
from nnlo_lib.state.out_of_memory import job_exit_reason
from nnlo_lib.state.training_records import read_step_marker

logger = get_logger(__name__)

# The ranks on other nodes report a lost peer if the killed rank leaves no message.
VAGUE_REASONS = ("killed", "peer lost")
# LSF stops a job above its memory limit with SIGTERM, and gives the reason only after the end of the job.
VAGUE_LSF_REASONS = (*VAGUE_REASONS, "preempted")


def all_attempts(state: Path, ranks: int, ended: bool) -> list[Attempt]:
    """Return the recorded attempts and the attempt, if any, that left its lease behind without a record.

    If the last attempt is recorded as killed, its job is asked again whether it ran out of memory. Unless all attempts have
    `ended`, a lease belongs to the one that runs, and is ignored. `ranks` is the number of the recovered attempt.
    """
    attempts = read_attempts(state)
    if not ended:
        return attempts
    with suppress(OSError):
        # The timeout is not used: the lease is read once and not polled.
        dead = OwnerMonitor(StatePaths(state).lease, 0.0)
        recovered = recover_attempt(state, dead, ranks, attempts)
        return [*attempts, recovered] if recovered else attempts
    return _corrected_last(attempts)


@contextmanager
def leased(
    state: Path, ranks: int, patient: bool = False, give_up: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Lease, AttemptLog]]:
    """Hold the lease of a `state/` folder; record the attempt of a dead launcher that held it before.

    Raises as `Lease.acquire` does.
    """
    lease = Lease(state)
    dead = lease.acquire(patient, give_up)
    try:
        # Read only now: the lease's previous owner may have appended an attempt until it released the lease.
        log = AttemptLog(state)
        if dead and (recovered := recover_attempt(state, dead, ranks, log.attempts)):
            record_attempt(log, recovered)
        yield lease, log
    finally:
        lease.release()


def record_attempt(log: AttemptLog, ended: Attempt) -> None:
    """Append an attempt to the log; if it cannot be written, warn, and let this process count it."""
    try:
        log.append(ended)
    except OSError as error:
        # A full disk must not turn a finished training into a failure.
        logger.warning(f"cannot record attempt {ended.attempt} in state/attempts.jsonl: {error}")
        log.attempts.append(ended)


def recover_attempt(
    state: Path, dead: OwnerMonitor, ranks: int, recorded: Sequence[Attempt]
) -> Attempt | None:
    """Return the record of a dead launcher's attempt, with the exit reason that the scheduler reports.

    Return None if the launcher recorded its attempt, and died before the release of its lease.
    """
    claim = dead.lease_owner
    # Only the owner of the lease records attempts, and its attempt starts after its claim.
    if recorded and recorded[-1].host == claim.host and recorded[-1].started >= claim.since:
        return None
    # A dead launcher has left no end time; its last heartbeat is the best estimate.
    ended = datetime.fromtimestamp(dead.last_heartbeat, UTC)
    job = BatchJob.from_id(claim.scheduler, claim.job)
    # Rank 0 had published all results; the evaluation that follows was killed.
    is_done = any(StatePaths(state).done.glob("*"))
    reason = "finished" if is_done else job_exit_reason(job) if job else "killed"
    error = None if is_done else f"{reason}: {claim} exited without recording a result"
    seconds = round(max(0.0, (ended - datetime.fromisoformat(claim.since)).total_seconds()), 3)
    return Attempt(
        len(recorded) + 1, claim.since, timestamp(dead.last_heartbeat), seconds, claim.host, claim.job, reason, error,
        *read_progress(state), ranks,
    )  # fmt: skip


def read_progress(state: Path) -> tuple[int, int, int]:
    """Return first step and last completed step of the last attempt, and the newest checkpoint's step.

    The checkpoint's step is 0 if no checkpoint is readable. If the last attempt did not start training, all
    three are the checkpoint's step.
    """
    paths, saved = StatePaths(state), 0
    for folder in reversed(checkpoint_folders(paths.checkpoints)):
        with suppress(OSError, ValueError, UserError):
            saved = CheckpointManifest.read(folder).step
            break
    # The launcher deletes the marker before it starts the ranks, so an existing one is of this attempt.
    start, reached = read_step_marker(state) if paths.step.exists() else (saved, saved)
    return start, reached, saved


def correct_last_attempt(log: AttemptLog) -> None:
    """Correct the last recorded attempt on disk; the caller holds the lease."""
    for before, after in zip(log.attempts[-1:], _corrected_last(log.attempts)[-1:], strict=True):
        if after != before:
            logger.info(f"attempt {before.attempt} ran out of memory: {before.reason} is corrected")
            with suppress(OSError):
                log.replace_last(after)


def _corrected_last(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts, the last with the reason `out of memory` if its job reports this now.

    Earlier attempts were corrected when the next one started: a launcher can record `killed` before Slurm writes that
    it has killed a rank for its memory.
    """
    if not attempts or not (job := BatchJob.of_this_site(attempts[-1].job)):
        return [*attempts]
    vague = VAGUE_LSF_REASONS if job.scheduler == "lsf" else VAGUE_REASONS
    if attempts[-1].reason not in vague or job_exit_reason(job) != "out of memory":
        return [*attempts]
    error = f"job {attempts[-1].job} exceeded its memory"
    return [*attempts[:-1], replace(attempts[-1], reason="out of memory", error=error)]


def record_lost_attempt(state: Path, job: BatchJob, reason: ExitReason, ranks: int, error: str = "") -> bool:
    """Append an attempt for a job that has left none; return False if it has left one.

    The function changes nothing if a launcher, of this or another job, may hold the lease of the folder, which is created if
    missing. `error` is a message for the user, by default one from the reason.

    Raises OSError if the record cannot be written.
    """
    with suppress(LeaseHeldError, UserError), leased(state, ranks, give_up=lambda: True) as (_, log):
        if log.attempts and log.attempts[-1].job == job.job_id:
            return False
        text = error or f"{reason}: {job.scheduler} job {job.job_id} ended before its first line"
        now, (_, _, saved) = timestamp(), read_progress(state)
        log.append(
            Attempt(log.next_number, now, now, 0.0, "", job.job_id, reason, text, saved, saved, saved, ranks)
        )
        return True
    return False
