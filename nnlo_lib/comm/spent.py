"""Where a rank's time in calls goes: seconds by phase, told span by span to whoever listens."""

from collections import defaultdict
from collections.abc import Callable

Listener = Callable[[str, str, float, float], None]  # name, phase, start and end in seconds


class Spent(defaultdict[str, float]):
    """Seconds by phase (`communication`, `wait`). listener: is told of each span, if there is one."""

    def __init__(self) -> None:
        super().__init__(float)
        self.listener: Listener | None = None

    def tell(self, name: str, phase: str, start: float, end: float) -> None:
        """Tell of a span; spans nest, and those inside are told first."""
        if self.listener is not None:
            self.listener(name, phase, start, end)
