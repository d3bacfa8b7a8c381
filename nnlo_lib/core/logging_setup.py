"""Log messages through the standard `logging`: on the terminal `nnlo: [warning: |error: ]message`.

Lines on the terminal have no time stamp; lines of state/log.txt have one.
"""

import logging
import sys
from contextlib import suppress

TERMINAL_PREFIX = "nnlo: "


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module of nnlo; the first call installs the stderr handler of all modules."""
    package = logging.getLogger("nnlo_lib")
    if not package.handlers:
        package.addHandler(terminal_handler(TERMINAL_PREFIX))
        package.setLevel(logging.INFO)
        # With propagation, messages would be written twice if the root logger also has a handler.
        package.propagate = False
    return logging.getLogger(name)


def terminal_handler(prefix: str = "") -> logging.Handler:
    """Return a handler that writes messages to stderr, each after the prefix and its level."""
    handler = TerminalHandler()
    handler.setFormatter(LevelFormatter(prefix))
    return handler


class LevelFormatter(logging.Formatter):
    """Puts the level before a message, except for levels up to INFO."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Return one message, which may have several lines."""
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"{self._prefix}{level}{record.getMessage()}"


# logging.StreamHandler would keep the sys.stderr of its creation, and print a traceback for a write error.
class TerminalHandler(logging.Handler):
    """Writes to the current `sys.stderr` and ignores write errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        write_stderr(f"{self.format(record)}\n")


def write_stderr(text: str) -> None:
    """Write to stderr and ignore errors.

    The process must not fail if the reader of stderr has exited, for example when a scheduler ended it.
    """
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
