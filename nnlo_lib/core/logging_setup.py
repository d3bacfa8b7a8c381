"""What a user reads while a command runs: log messages, on the terminal as `nnlo: [warning: |error: ]message`, and progress bars.

Lines on the terminal have no time stamp; lines of state/log.txt and of NNLO_LOG_FILE have one. Level and file are
environment variables, so that the ranks and the jobs of a command have those of the command.
"""

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import mask
from nnlo_lib.core.text_format import number, size_text

if TYPE_CHECKING:
    from rich.progress import Progress

TERMINAL_PREFIX = "nnlo: "
LEVEL_VARIABLE, FILE_VARIABLE = "NNLO_LOG_LEVEL", "NNLO_LOG_FILE"
LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
}  # fmt: skip
PACKAGE = "nnlo_lib"
DRAWING_SECONDS = 0.5  # between two states of a progress bar
T = TypeVar("T")


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module of nnlo; the first call installs the stderr handler of all modules."""
    if not logging.getLogger(PACKAGE).handlers:
        _install_handlers()
    return logging.getLogger(name)


def _install_handlers() -> None:
    package = logging.getLogger(PACKAGE)
    package.handlers = [terminal_handler(TERMINAL_PREFIX), *log_file_handlers()]
    package.setLevel(log_level())
    # With propagation, messages would be written twice if the root logger also has a handler.
    package.propagate = False


def configure_logging(level: str | None, file: str | None) -> None:
    """Set the level and the file of all log messages, also those of the ranks that this process starts.

    None keeps what the environment has. Raises UserError if the level is unknown or the file cannot be written.
    """
    chosen = os.environ.get(LEVEL_VARIABLE, "info") if level is None else level
    if chosen not in LEVELS:
        raise UserError(f"{LEVEL_VARIABLE}: unknown level '{chosen}'; one of: {', '.join(LEVELS)}")
    # Ranks may have another working folder.
    path = os.path.abspath(file) if file else os.environ.get(FILE_VARIABLE, "")
    if path:
        _refuse_unwritable(path, "--log-file" if file else FILE_VARIABLE)
    os.environ.update({LEVEL_VARIABLE: chosen} | ({FILE_VARIABLE: path} if path else {}))
    _install_handlers()


def log_level() -> int:
    """Return the level of NNLO_LOG_LEVEL; INFO if it is not set or unknown."""
    return LEVELS.get(os.environ.get(LEVEL_VARIABLE, ""), logging.INFO)


def log_file_handlers() -> list[logging.Handler]:
    """Return a handler for NNLO_LOG_FILE, or none if it is not set."""
    path = os.environ.get(FILE_VARIABLE)
    return [LogFileHandler(Path(path))] if path else []


def _refuse_unwritable(path: str, where: str) -> None:
    try:
        with open(path, "a"):
            pass
    except OSError as error:
        raise UserError(f"{where}: cannot write to {path}: {error.strerror}; choose another file") from None


def terminal_handler(prefix: str = "") -> logging.Handler:
    """Return a handler that writes messages to stderr, each after the prefix and its level."""
    handler = TerminalHandler()
    handler.setFormatter(LevelFormatter(prefix))
    return handler


class LevelFormatter(logging.Formatter):
    """Puts the level before a message, except for INFO."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Return one message, which may have several lines."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"{self._prefix}{level}{record.getMessage()}"


# logging.StreamHandler would keep the sys.stderr of its creation, and print a traceback for a write error.
class TerminalHandler(logging.Handler):
    """Writes to the current `sys.stderr` and ignores write errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        write_stderr(f"{self.format(record)}\n")


class LogFileHandler(logging.Handler):
    """Appends messages with time stamps; opens the file for each message, because the file may be removed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.setFormatter(LevelFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message and ignore write errors."""
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        with suppress(OSError), self._path.open("a") as file:
            file.writelines(f"{now} {line}\n" for line in mask(self.format(record)).splitlines())


def write_stderr(text: str) -> None:
    """Write to stderr, with masked secrets, and ignore errors.

    The process must not fail if the reader of stderr has exited, for example when a scheduler ended it.
    """
    with suppress(OSError):
        sys.stderr.write(mask(text))
        sys.stderr.flush()


@contextmanager
def progress_bar(
    text: str,
    total: int | None,
    unit: str,
    done: int = 0,
    visible: bool | None = None,
    log_s: float = math.inf,
) -> Iterator[Callable[..., None]]:
    """Yield `show(done, note=function)`, which draws a bar on the terminal or, without one, logs a line each `log_s` seconds.

    Args:
        total: amount at the end; None if it is unknown.
        visible: whether to draw; None: if stderr is a terminal.
    """
    is_drawn = sys.stderr.isatty() if visible is None else visible
    if os.environ.get("TERM") == "dumb":
        is_drawn = False
    bar: Progress | None = None
    began, first = time.monotonic(), done
    pause = DRAWING_SECONDS if is_drawn else log_s
    due = began + pause

    def show(done: int, note: Callable[[], str] = str) -> None:
        nonlocal due, bar
        if (now := time.monotonic()) < due:
            return
        due, pace = now + pause, (done - first) / (now - began)
        shown = f"{number(pace, 3)} {unit}/s  {note()}"
        if unit == "B":
            of = f" of {size_text(total)}" if total else ""
            shown = f"{size_text(done)}{of}  {size_text(pace)}/s"
        if not is_drawn:
            write_stderr(f"{text}: {shown}\n")
            return
        with suppress(OSError):  # the terminal may be gone
            if bar is None:
                bar = _terminal_bar(text, total)
                bar.start()
            bar.update(bar.task_ids[0], completed=done, note=shown, refresh=True)

    try:
        yield show
    finally:
        # Not bar.stop(), which moves the cursor up: another rank may have printed a line since.
        if bar:
            write_stderr("\r\x1b[2K")


def _terminal_bar(text: str, total: int | None) -> "Progress":
    # Here, because many trainings end before a bar is drawn, and the import takes as long as such a training.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr, force_terminal=True)
    # A process that is killed could not show the cursor again.
    setattr(console, "show_cursor", lambda show: False)  # noqa: B010
    bar = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False), console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    bar.add_task(text, total=total, note="")
    return bar


def tracked(items: Iterable[T], text: str, total: int, unit: str) -> Iterator[T]:
    """Yield the items, and show how many the caller is done with."""
    with progress_bar(text, total, unit) as show:
        for count, item in enumerate(items):
            show(count)
            yield item
