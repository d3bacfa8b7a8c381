"""Stop signals to a command: they end it with one sentence, and its temporary files are removed."""

import os
import signal
from types import FrameType

EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped on request; the same command resumes
# The default action for SIGTERM, SIGUSR1 and SIGUSR2 is to end the process without a message.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


class StopRequestedError(KeyboardInterrupt):
    """A signal asked the command to stop; the message is for the user."""


class StopSignals:
    """Makes stop signals raise StopRequestedError, until a part of the command that saves on a stop handles them."""

    def __init__(self) -> None:
        self._raised = False

    def install(self) -> None:
        """Install the handlers, except for signals that the parent process ignores, as nohup does."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        text = f"stopped by {signal.Signals(number).name}; run the same command again"
        # Compiled code that is importing, such as pydantic's, replaces or swallows the exception. Nothing is to be
        # cleaned up then. The second signal ends a command that has swallowed the first one elsewhere.
        if self._raised or _is_importing(frame):
            os.write(2, f"nnlo: {text}\n".encode())
            os._exit(EXIT_STOPPED)
        self._raised = True
        raise StopRequestedError(text)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
