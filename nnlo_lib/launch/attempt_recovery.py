"""The record of a task's attempts, also of those that ended without a record, or with a vague one.

The end of the latter is what the scheduler and the state folder report.
"""

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
from nnlo_lib.state.attempts import Attempt, append_attempt, read_attempts, replace_last_attempt
from nnlo_lib.state.lease import Lease, LeaseHeldError, OwnerMonitor
from nnlo_lib.state.out_of_memory import job_exit_reason
from nnlo_lib.state.training_records import read_step_marker

logger = get_logger(__name__)

# Reasons that the scheduler may correct later. The ranks on other nodes report a lost peer if the killed rank leaves no
# message. LSF stops a job above its memory limit with SIGTERM, and gives the reason only after the end of the job.
VAGUE_REASONS = {"slurm": ("killed", "peer lost"), "lsf": ("killed", "peer lost", "preempted")}


def all_attempts(state: Path, ranks: int, ended: bool) -> list[Attempt]:
    """Return the recorded attempts and the attempt, if any, that left its lease behind without a record.

    The job of the last one is asked again whether it ran out of memory. Unless all have `ended`, a lease belongs to the one
    that runs, and is ignored. `ranks` is the number of the recovered attempt.
    """
    attempts = read_attempts(state)
    if not ended:
        return attempts
    with suppress(OSError):
        # The timeout is not used: the lease is read once and not polled.
        dead = OwnerMonitor(StatePaths(state).lease, 0.0)
        return [*attempts, *_recovered(state, dead, ranks, attempts)]
    return [*attempts[:-1], *map(_corrected, attempts[-1:])]


@contextmanager
def leased(
    state: Path, ranks: int, patient: bool = False, give_up: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Lease, list[Attempt]]]:
    """Hold the lease of a `state/` folder; yield it with the recorded attempts, also that of a dead launcher that held it before.

    Raises as `Lease.acquire` does.
    """
    lease = Lease(state)
    dead = lease.acquire(patient, give_up)
    try:
        # Read only now: the lease's previous owner may have appended an attempt until it released the lease.
        attempts = read_attempts(state)
        for recovered in _recovered(state, dead, ranks, attempts) if dead else []:
            record_attempt(state, attempts, recovered)
        yield lease, attempts
    finally:
        lease.release()


def record_attempt(state: Path, attempts: list[Attempt], ended: Attempt) -> None:
    """Append an attempt to the record and to `attempts`; warn if it cannot be written, and let this process count it."""
    try:
        append_attempt(state, ended)
    except OSError as error:
        # A full disk must not turn a finished training into a failure.
        logger.warning(f"cannot record attempt {ended.attempt} in state/attempts.jsonl: {error}")
    attempts.append(ended)


def _recovered(state: Path, dead: OwnerMonitor, ranks: int, recorded: Sequence[Attempt]) -> Iterator[Attempt]:
    """Yield the attempt of a dead launcher, with the exit reason that the scheduler reports, unless it is recorded.

    A launcher may die between the record of its attempt and the release of its lease.
    """
    claim = dead.lease_owner
    # Only the owner of the lease records attempts, and its attempt starts after its claim.
    if recorded and recorded[-1].host == claim.host and recorded[-1].started >= claim.since:
        return
    # A dead launcher has left no end time; its last heartbeat is the best estimate.
    ended = datetime.fromtimestamp(dead.last_heartbeat, UTC)
    job = BatchJob.from_id(claim.scheduler, claim.job)
    # Rank 0 had published all results; the evaluation that follows was killed.
    is_done = any(StatePaths(state).done.glob("*"))
    reason: ExitReason = "finished" if is_done else job_exit_reason(job) if job else "killed"
    error = None if is_done else f"{reason}: {claim} exited without recording a result"
    seconds = round(max(0.0, (ended - datetime.fromisoformat(claim.since)).total_seconds()), 3)
    yield Attempt(
        len(recorded) + 1, claim.since, timestamp(dead.last_heartbeat), seconds, claim.host, claim.job, reason, error,
        *read_progress(state), ranks,
    )  # fmt: skip


def newest_checkpoint(state: StatePaths) -> CheckpointManifest | None:
    """Return the manifest of the newest readable checkpoint; None without one."""
    for folder in reversed(checkpoint_folders(state.checkpoints)):
        with suppress(OSError, ValueError, UserError):
            return CheckpointManifest.read(folder)
    return None


def read_progress(state: Path) -> tuple[int, int, int]:
    """Return first step and last completed step of the last attempt, and the newest checkpoint's step.

    The checkpoint's step is 0 if no checkpoint is readable. If the last attempt did not start training, all
    three are the checkpoint's step.
    """
    paths = StatePaths(state)
    saved = newest.step if (newest := newest_checkpoint(paths)) else 0
    # The launcher deletes the marker before it starts the ranks, so an existing one is of this attempt.
    start, reached = read_step_marker(state) if paths.step.exists() else (saved, saved)
    return start, reached, saved


def correct_last_attempt(state: Path, attempts: list[Attempt]) -> None:
    """Correct the last attempt, in the record too; the caller holds the lease.

    Earlier attempts were corrected when the next one started: a launcher can record `killed` before Slurm writes that
    it has killed a rank for its memory.
    """
    if attempts and (after := _corrected(before := attempts[-1])) != before:
        logger.info(f"attempt {before.attempt} ran out of memory: {before.reason} is corrected")
        with suppress(OSError, UserError, ValueError):  # a full disk may have left no record to correct
            replace_last_attempt(state, after)
            attempts[-1] = after


def _corrected(last: Attempt) -> Attempt:
    """Return the attempt, with the reason `out of memory` if its job reports this now."""
    job = BatchJob.of_this_site(last.job)
    if not job or last.reason not in VAGUE_REASONS[job.scheduler] or job_exit_reason(job) != "out of memory":
        return last
    return replace(last, reason="out of memory", error=f"job {last.job} exceeded its memory")


def record_lost_attempt(state: Path, job: BatchJob, reason: ExitReason, ranks: int, error: str = "") -> bool:
    """Append an attempt for a job that has left none; return False if it has left one.

    The function changes nothing if a launcher, of this or another job, may hold the lease of the folder, which is created if
    missing. `error` is a message for the user, by default one from the reason.

    Raises OSError if the record cannot be written.
    """
    with suppress(LeaseHeldError, UserError), leased(state, ranks, give_up=lambda: True) as (_, attempts):
        if attempts and attempts[-1].job == job.job_id:
            return False
        text = error or f"{reason}: {job.scheduler} job {job.job_id} ended before its first line"
        now, (_, _, saved) = timestamp(), read_progress(state)
        steps = saved, saved, saved
        append_attempt(
            state, Attempt(len(attempts) + 1, now, now, 0.0, "", job.job_id, reason, text, *steps, ranks)
        )
        return True
    return False
