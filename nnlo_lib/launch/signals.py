"""The signals that ask a launcher to stop, recorded until they can be forwarded to its ranks."""

import signal
from types import FrameType
from typing import Protocol

# LSF sends SIGURG before the time limit (profiles/lsf/config.yaml).
LAUNCHER_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)


class SignalSource(Protocol):
    """Source of stop signals; `first` is the name of the first one received, or an empty string."""

    @property
    def first(self) -> str: ...


class SignalRecorder:
    """Recorder of stop signals to this process.

    Attributes:
        first: name of the first signal, or an empty string.
        received: number of signals.
    """

    def __init__(self) -> None:
        self.first, self.received = "", 0
        self._before = {number: signal.signal(number, self._record) for number in LAUNCHER_STOP_SIGNALS}

    def restore(self) -> None:
        """Install the handlers again that were installed before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _record(self, number: int, _: FrameType | None) -> None:
        self.first = self.first or signal.Signals(number).name
        self.received += 1
