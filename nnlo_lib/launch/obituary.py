"""The record of an attempt whose launcher died and could not write it."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from nnlo_lib.launch.standing import standing
from nnlo_lib.state.attempts import Attempt, read
from nnlo_lib.state.lease import NAME
from nnlo_lib.state.rival import Rival
from nnlo_lib.state.scheduler import Job


def known(state: Path, ranks: int, ended: bool) -> list[Attempt]:
    """Return all attempts, with the one whose lease is left behind if it is known to have `ended`."""
    attempts = read(state)
    if ended:
        with suppress(OSError):
            attempts.append(obituary(state, Rival(state / NAME, 0.0), ranks))
    return attempts


def obituary(state: Path, dead: Rival, ranks: int) -> Attempt:
    """Tell of the attempt of a dead launcher; why it ended is asked from the scheduler."""
    claim, ended = dead.claim, datetime.fromtimestamp(dead.seen, UTC)
    job = Job.of(claim.scheduler, claim.job)
    reason = job.end() if job else "killed"
    start, reached, saved = standing(state)
    return Attempt(
        attempt=len(read(state)) + 1,
        started=claim.since,
        ended=ended.isoformat(timespec="seconds"),
        seconds=round(max(0.0, (ended - datetime.fromisoformat(claim.since)).total_seconds()), 3),
        host=claim.host,
        job=claim.job,
        reason=reason,
        error=f"{reason}: {claim} ended without a word",
        start=start,
        reached=reached,
        saved=saved,
        ranks=ranks,
    )
