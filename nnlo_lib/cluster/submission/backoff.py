"""When to submit again after the batch system refused a submission for now."""

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
