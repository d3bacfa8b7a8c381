"""Whether another attempt could end better than those before."""

from collections.abc import Sequence

from nnlo_lib.state.attempts import Attempt, out_of_memory
from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.reason import CHANCE, FINAL

MEMORY_RAISES = 3
MEMORY_FACTOR = 1.5


def futile(attempts: Sequence[Attempt], runtime: int) -> Outcome | None:
    """Return how the next attempt would end if that is known; runtime: minutes that each may take."""
    last = attempts[-1] if attempts else None
    if last is None:
        return None
    if last.reason in FINAL:
        why = f"not tried again, for it would end like attempt {last.attempt} ({last.reason}): {last.error}"
        return Outcome(last.reason, why, usage=last.reason != "code error")
    if _twice(attempts, CHANCE) and _same_place(*attempts[-2:]):
        return Outcome(last.reason, f"failed twice at step {last.reached}, so not tried again: {last.error}")
    if _twice(attempts, ("time limit",)) and all(each.saved <= each.start for each in attempts[-2:]):
        why = f"resources.runtime: {runtime} minutes are too short to do and save a single step; raise it"
        return Outcome("bad input", why, usage=True)
    if last.reason == "out of memory" and out_of_memory(attempts) > MEMORY_RAISES:
        why = f"out of memory even after resources.mem_mb was raised {MEMORY_RAISES} times: {last.error}"
        return Outcome(last.reason, why)
    return None


def raised(memory: int, attempts: Sequence[Attempt]) -> int:
    """Return the memory of the next attempt: half more for each time the run ran out of it, three times at most."""
    return round(memory * MEMORY_FACTOR ** min(out_of_memory(attempts), MEMORY_RAISES))


def _twice(attempts: Sequence[Attempt], reasons: Sequence[str]) -> bool:
    return len(attempts) > 1 and all(each.reason in reasons for each in attempts[-2:])


def _same_place(before: Attempt, last: Attempt) -> bool:
    return before.reached == last.reached and before.saved == last.saved
