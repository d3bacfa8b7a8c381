"""Signals only set a flag; the ranks agree on it at a step boundary, save together and end."""

import signal
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
EXIT_PREEMPTED = 75  # EX_TEMPFAIL: saved, run the same command again


class StopFlag:
    """Remember the first signal that asked this rank to stop."""

    def __init__(self) -> None:
        self.signal: str | None = None

    def listen(self) -> "StopFlag":
        """Handle the signals from now on."""
        for number in SIGNALS:
            signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number).name

    def __call__(self) -> bool:
        return self.signal is not None
