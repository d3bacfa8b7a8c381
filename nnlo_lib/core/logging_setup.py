"""Messages for people, through the standard `logging`: on the terminal `nnlo: [warning: |error: ]message`.

Lines on the terminal have no time stamp, as a scheduler's log and a person's eyes do without; state/log.txt has it.
"""

import logging
import sys
from contextlib import suppress

TERMINAL_PREFIX = "nnlo: "


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module of nnlo; the first call lets all of them write to stderr."""
    package = logging.getLogger("nnlo_lib")
    if not package.handlers:
        package.addHandler(terminal_handler(TERMINAL_PREFIX))
        package.setLevel(logging.INFO)
        package.propagate = (
            False  # else a message is written twice where the program has a handler of its own
        )
    return logging.getLogger(name)


def terminal_handler(prefix: str = "") -> logging.Handler:
    """Return a handler that writes to stderr, and before each message the prefix and its level."""
    handler = TerminalHandler()
    handler.setFormatter(LevelFormatter(prefix))
    return handler


class LevelFormatter(logging.Formatter):
    """Write the level before a message, but for that of plain messages, INFO."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Return one message, which may have several lines."""
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"{self._prefix}{level}{record.getMessage()}"


class TerminalHandler(logging.Handler):
    """Write to what stderr is at the time, even if nobody reads it any more."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        write_stderr(f"{self.format(record)}\n")


def write_stderr(text: str) -> None:
    """Write to stderr; a scheduler may have ended whoever read it, which must not end this process, too."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
