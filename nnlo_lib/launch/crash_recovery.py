"""Reconstruction of the record of an attempt if its launcher died before writing it."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from nnlo_lib.checkpoint.checkpoint_folder import checkpoint_folders
from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.timestamp import timestamp
from nnlo_lib.launch.killed_attempt import correct_last
from nnlo_lib.state.attempts import Attempt, read_attempts
from nnlo_lib.state.lease_owner import OwnerMonitor
from nnlo_lib.state.out_of_memory import job_exit_reason
from nnlo_lib.state.step_marker import read_step_marker


def all_attempts(state: Path, ranks: int, ended: bool) -> list[Attempt]:
    """Return the recorded attempts and the attempt, if any, that left its lease behind without a record.

    If the last attempt is recorded as killed, its job is asked again whether it ran out of memory.

    Args:
        state: `state/` folder of the run.
        ranks: number of ranks of the run, for the recovered attempt.
        ended: whether no attempt is running; otherwise a lease belongs to the running attempt and is ignored.
    """
    attempts = read_attempts(state)
    if ended:
        with suppress(OSError):
            # The timeout is not used: the lease is read once and not polled.
            dead = OwnerMonitor(StatePaths(state).lease, 0.0)
            recovered = recover_attempt(state, dead, ranks, attempts)
            return [*attempts, recovered] if recovered else attempts
        return correct_last(attempts)
    return attempts


def recover_attempt(
    state: Path, dead: OwnerMonitor, ranks: int, recorded: Sequence[Attempt]
) -> Attempt | None:
    """Return the record of a dead launcher's attempt, with the exit reason that the scheduler reports.

    Returns None if the launcher recorded its attempt, and died before the release of its lease.

    Args:
        state: `state/` folder of the run.
        dead: owner of the lease that was left behind.
        ranks: number of ranks of the run.
        recorded: recorded attempts, in their order.
    """
    claim = dead.lease_owner
    # Only the owner of the lease records attempts, and its attempt starts after its claim.
    if recorded and recorded[-1].host == claim.host and recorded[-1].started >= claim.since:
        return None
    # A dead launcher has left no end time; its last heartbeat is the best estimate.
    ended = datetime.fromtimestamp(dead.last_heartbeat, UTC)
    job = BatchJob.from_id(claim.scheduler, claim.job)
    reason = job_exit_reason(job) if job else "killed"
    start, reached, saved = read_progress(state)
    return Attempt(
        attempt=len(recorded) + 1,
        started=claim.since,
        ended=timestamp(dead.last_heartbeat),
        seconds=round(max(0.0, (ended - datetime.fromisoformat(claim.since)).total_seconds()), 3),
        host=claim.host,
        job=claim.job,
        reason=reason,
        error=f"{reason}: {claim} exited without recording a result",
        start=start,
        reached=reached,
        saved=saved,
        ranks=ranks,
    )


def read_progress(state: Path) -> tuple[int, int, int]:
    """Return first step and last completed step of the last attempt, and the newest checkpoint's step.

    The checkpoint's step is 0 if no checkpoint is readable. If the last attempt did not start training, all
    three are the checkpoint's step.
    """
    paths = StatePaths(state)
    saved = _newest_checkpoint_step(paths.checkpoints)
    # The launcher deletes the marker before it starts the ranks, so an existing one is of this attempt.
    start, reached = read_step_marker(state) if paths.step.exists() else (saved, saved)
    return start, reached, saved


def _newest_checkpoint_step(checkpoints: Path) -> int:
    for folder in reversed(checkpoint_folders(checkpoints)):
        try:
            return CheckpointManifest.read(folder).step
        except (OSError, ValueError, UserError):
            continue
    return 0
