"""The signals that ask a launcher to stop, remembered until its ranks can hear of them."""

import signal
from types import FrameType
from typing import Protocol

LAUNCHER_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)


class SignalSource(Protocol):
    """first: the name of the first signal that came, empty if none did."""

    @property
    def first(self) -> str: ...


class SignalRecorder:
    """first: the name of the first one that came, empty if none did."""

    def __init__(self) -> None:
        self.first = ""
        for number in LAUNCHER_STOP_SIGNALS:
            signal.signal(number, self._record)

    def _record(self, number: int, _: FrameType | None) -> None:
        self.first = self.first or signal.Signals(number).name
