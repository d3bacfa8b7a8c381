"""Signals only set a flag; the ranks agree on it at a step boundary, save together and end."""

import signal
import time
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
SAFETY = 3  # times as long as the last save: a file system at its limit is slower
LEAD = 90  # seconds before the time limit at which a rank asks to save, half of a shorter limit


class StopFlag:
    """Remember the first signal that asked this rank to stop; a time limit drawing near asks too."""

    def __init__(self, limit: float = float("inf")) -> None:
        """`limit`: seconds from now until the scheduler ends the job."""
        self.signal: str | None = None
        self._end = time.monotonic() + limit
        self._lead = min(LEAD, limit / 2)

    def saving_takes(self, seconds: float) -> None:
        """Ask so early that a save, which took `seconds` last time, will end before the time limit."""
        self._lead = max(self._lead, SAFETY * seconds)

    def listen(self) -> "StopFlag":
        """Handle the signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number).name

    def __call__(self) -> bool:
        return self.signal is not None or time.monotonic() > self._end - self._lead
