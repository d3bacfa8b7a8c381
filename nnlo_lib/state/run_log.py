"""The log of a run in `state/`: every attempt appends to it, and it is published once at the end."""

import logging
import shutil
from pathlib import Path

from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.exit_reason import RESUMABLE_REASONS
from nnlo_lib.core.logging_setup import LogFileHandler, log_file_handlers, log_level, terminal_handler
from nnlo_lib.state.attempt_outcome import AttemptOutcome


class RunLog:
    """Log to stderr and, with time stamps, to state/log.txt; does nothing unless `enabled` (rank 0)."""

    def __init__(self, folder: Path, enabled: bool) -> None:
        self._path = StatePaths(folder).log
        self._logger = logging.Logger("nnlo_lib.run")  # not shared: simulated ranks share a process
        self._logger.disabled = not enabled
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            # state/log.txt is the record of the run and has all messages, whatever the level of the terminal is.
            for handler in (terminal_handler(), *log_file_handlers()):
                handler.setLevel(log_level())
                self._logger.addHandler(handler)
            self._logger.addHandler(LogFileHandler(self._path))

    def write(self, text: str) -> None:
        """Write `text` to stderr and to the file; errors of the file are ignored."""
        self._logger.info(text)

    def warn(self, text: str) -> None:
        """Write `warning: text`."""
        self._logger.warning(text)

    def publish(self, path: Path) -> None:
        """Copy the whole log to `path`."""
        with atomic_write(path) as part:
            # As bytes: after a power failure the log may contain zeros, and users' code may print any encoding.
            shutil.copyfile(self._path, part)


def log_error(folder: Path, outcome: AttemptOutcome) -> None:
    """Append the error of an ended attempt, and its details, to the log in `folder`; write errors are ignored."""
    if not outcome.error or not folder.exists():
        return
    level = logging.INFO if outcome.reason in RESUMABLE_REASONS else logging.ERROR
    details = "" if outcome.details.strip() in outcome.error else f"\n{outcome.details.strip()}"
    record = logging.LogRecord("nnlo_lib.run", level, "", 0, f"{outcome.error}{details}", None, None)
    LogFileHandler(StatePaths(folder).log).emit(record)
