"""Stop flag, set by signals or a time limit; the ranks agree to stop at a step, save together and exit."""

import signal
import time
from types import FrameType

# Warnings before the end of a job are SIGUSR1 (--signal in profiles/slurm) and SIGURG (-wa in profiles/lsf);
# LSF sends SIGUSR2 at its run limit. SIGTERM and SIGINT come from preemption and users.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
SAVE_TIME_FACTOR = 3  # margin over the duration of the last save, because an overloaded file system is slower
# Seconds before the time limit at which a rank requests a stop, or half of the limit if that is shorter.
MIN_SAVE_LEAD_S = 90


class StopFlag:
    """Requests a stop of this rank after the first stop signal, or shortly before the time limit."""

    def __init__(self, limit: float = float("inf")) -> None:
        """Start the clock; `limit`: seconds from now until the scheduler ends the job."""
        self.signal: str | None = None
        self._end = time.monotonic() + limit
        self._lead = min(MIN_SAVE_LEAD_S, limit / 2)

    def reserve_save_time(self, seconds: float) -> None:
        """Set the flag early enough to save before the time limit; `seconds`: duration of the last save."""
        # The lead only grows, because the next save may be as slow as the slowest one.
        self._lead = max(self._lead, SAVE_TIME_FACTOR * seconds)

    def install_handlers(self) -> "StopFlag":
        """Install the handlers of STOP_SIGNALS; return this flag."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        # The handler only sets the flag: saving needs all ranks, which agree at the next step. The first
        # signal is the cause that the launcher reports.
        self.signal = self.signal or signal.Signals(number).name

    def __call__(self) -> bool:
        return self.signal is not None or time.monotonic() > self._end - self._lead
