"""When to submit again after the batch system refused a submission for now."""

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_DELAY_S, MAX_DELAY_S = 10.0, 300.0


@dataclass
class Backoff:
    """Delays that double from FIRST_DELAY_S to MAX_DELAY_S; `succeeded` starts again."""

    _next: float = FIRST_DELAY_S

    def delay(self) -> float:
        """Return the seconds to wait before the next submission."""
        delay, self._next = self._next, min(2 * self._next, MAX_DELAY_S)
        return delay

    def succeeded(self) -> None:
        """Start with the shortest delay again."""
        self._next = FIRST_DELAY_S


class SubmissionGate:
    """Closed for all jobs after a refusal, because a limit or an outage concerns all.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._backoff, self._opens = clock, Backoff(), 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until the next submission may be tried; 0 if the gate is open."""
        return max(0.0, self._opens - self._clock())

    def close(self) -> float:
        """Close the gate for the next delay; return the delay in seconds."""
        delay = self._backoff.delay()
        self._opens = self._clock() + delay
        return delay

    def succeeded(self) -> None:
        """Note an accepted submission: the delay after the next refusal is the shortest."""
        self._backoff.succeeded()
