"""Retry policy: whether to make another attempt, and with how much memory."""

from collections.abc import Sequence

from nnlo_lib.core.exit_reason import PERMANENT_REASONS, TRANSIENT_REASONS
from nnlo_lib.state.attempts import Attempt, count_out_of_memory
from nnlo_lib.state.outcome import AttemptOutcome

MAX_MEMORY_INCREASES = 3
# 1.5 ** 3: the last attempt requests 3.4 times resources.mem_mb.
MEMORY_FACTOR = 1.5


def reason_not_to_retry(attempts: Sequence[Attempt], runtime: int) -> AttemptOutcome | None:
    """Return the outcome of the next attempt if it is predictable (then no retry is made), else None.

    Args:
        attempts: recorded attempts in their order.
        runtime: time limit of an attempt in minutes, for the message.
    """
    last = attempts[-1] if attempts else None
    if last is None:
        return None
    if last.reason in PERMANENT_REASONS:
        why = f"not retried, because it would fail like attempt {last.attempt} ({last.reason}): {last.error}"
        return AttemptOutcome(last.reason, why, is_user_error=last.reason != "code error")
    # Retries are bounded by progress: two failures at the same step are not transient.
    if _last_two_ended_by(attempts, TRANSIENT_REASONS) and _stopped_at_same_step(*attempts[-2:]):
        return AttemptOutcome(
            last.reason, f"failed twice at step {last.reached}, therefore not retried: {last.error}"
        )
    if _last_two_ended_by(attempts, ("time limit",)) and all(
        each.saved <= each.start for each in attempts[-2:]
    ):
        why = f"resources.runtime: {runtime} minutes are too short to train and save one step; raise resources.runtime"
        return AttemptOutcome("bad input", why, is_user_error=True)
    if last.reason == "out of memory" and count_out_of_memory(attempts) > MAX_MEMORY_INCREASES:
        why = (
            f"out of memory even after resources.mem_mb was raised {MAX_MEMORY_INCREASES} times: {last.error}"
        )
        return AttemptOutcome(last.reason, why)
    return None


def memory_for_next_attempt(memory: int, attempts: Sequence[Attempt]) -> int:
    """Return `memory` times MEMORY_FACTOR per out-of-memory attempt, at most MAX_MEMORY_INCREASES times."""
    return round(memory * MEMORY_FACTOR ** min(count_out_of_memory(attempts), MAX_MEMORY_INCREASES))


def _last_two_ended_by(attempts: Sequence[Attempt], reasons: Sequence[str]) -> bool:
    return len(attempts) > 1 and all(each.reason in reasons for each in attempts[-2:])


def _stopped_at_same_step(before: Attempt, last: Attempt) -> bool:
    return before.reached == last.reached and before.saved == last.saved
