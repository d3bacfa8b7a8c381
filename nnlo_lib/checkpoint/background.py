"""Work that goes on beside the training, and what became of it."""

from collections.abc import Callable
from threading import Thread


def told(error: Exception) -> str:
    """Say what went wrong; never nothing."""
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


class Background(Thread):
    """Do `work` in a thread that does not keep the process alive; `trouble` says why it failed, if it did."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.trouble = ""
        self.start()

    def run(self) -> None:
        """Work until done or until something goes wrong: the training goes on without it."""
        try:
            self._work()
        except Exception as error:
            self.trouble = told(error)

    def outcome(self) -> str:
        """Wait for the end; return why it failed, empty if it did not."""
        self.join()
        return self.trouble
