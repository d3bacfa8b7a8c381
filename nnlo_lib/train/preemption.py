"""Signals only set a flag; the ranks agree on it at a step boundary, save together and end."""

import signal
import time
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
SAVE_TIME_FACTOR = 3  # times as long as the last save: a file system at its limit is slower
MIN_SAVE_LEAD_S = 90  # seconds before the time limit at which a rank asks to save, half of a shorter limit


class StopFlag:
    """Remember the first signal that asked this rank to stop; a time limit drawing near asks too."""

    def __init__(self, limit: float = float("inf")) -> None:
        """`limit`: seconds from now until the scheduler ends the job."""
        self.signal: str | None = None
        self._end = time.monotonic() + limit
        self._lead = min(MIN_SAVE_LEAD_S, limit / 2)

    def reserve_save_time(self, seconds: float) -> None:
        """Ask so early that a save, which took `seconds` last time, will end before the time limit."""
        self._lead = max(self._lead, SAVE_TIME_FACTOR * seconds)

    def install_handlers(self) -> "StopFlag":
        """Handle the signals from now on."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number).name

    def __call__(self) -> bool:
        return self.signal is not None or time.monotonic() > self._end - self._lead
