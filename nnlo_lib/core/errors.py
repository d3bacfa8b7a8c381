"""Exceptions of nnlo, exit statuses of commands and attempts, stop signals, and errors as one line."""

import errno
import functools
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from nnlo_lib.core.secrets import mask

EXIT_USER_ERROR = 2
EXIT_PARTIAL_IMPORT = 3  # `nnlo import` printed an experiment that lacks options of its input
EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: stopped on request; the same command resumes
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
# Of all processes: commands, launchers, ranks. SIGTERM and SIGINT come from preemption and users, SIGHUP from a terminal
# that closes. Warnings before the end of a job are SIGUSR1 (--signal in profiles/slurm) and SIGURG (-wa in profiles/lsf);
# LSF sends SIGUSR2 at its run limit, and the kernel SIGXCPU.
STOP_SIGNALS = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG, signal.SIGXCPU,
)  # fmt: skip
CPU_LIMIT_TEXT = "the limit of processor time (ulimit -t) is reached"
SignalHandler = Callable[[int, FrameType | None], Any]
# Errors of a user's function. sys.exit() in it would end nnlo without a message, or with the status 0.
USER_CODE_ERRORS = (Exception, SystemExit)
ExitReason = Literal[
    "finished", "preempted", "time limit", "canceled", "node failure", "out of memory", "diverged", "bad input",
    "user code", "code error", "disk full", "killed", "crashed", "peer lost",
]  # fmt: skip
RESUMABLE_REASONS = ("preempted", "time limit")  # the ranks saved and stopped; the job may be submitted again
STOPPED_REASONS = (*RESUMABLE_REASONS, "canceled")  # the ranks stopped on request
USER_REASONS = ("bad input", "user code", "diverged")  # the user can correct the cause
PERMANENT_REASONS = (*USER_REASONS, "code error")  # the next attempt would fail again
TRANSIENT_REASONS = ("killed", "crashed", "peer lost", "node failure")  # the next attempt may succeed
TRACEBACK_START = "Traceback (most recent call last):"
CUT = " [...] "
HEADLINE_CHARS = 1000  # in tables and pages; errors of Keras contain the whole model configuration
HEAD_SHARE = 0.3  # of the characters that are kept; the cause is more often at the end


class UserError(Exception):
    """An error that the user can correct; the message gives its location, its cause and the fix, without secrets."""

    def __init__(self, message: object = "") -> None:
        super().__init__(mask(str(message)))


class DivergedError(UserError):
    """Training cannot continue because the loss, or the gradient, is not finite."""


class CheckpointNotSavedError(Exception):
    """A run that had to stop could not be saved; the last good checkpoint is unchanged."""


class InvariantError(Exception):
    """An algorithm violated its invariant; the message gives its name, the relative error and the step."""


class StopRequestedError(KeyboardInterrupt):
    """A signal asked the command to stop; the message is for the user."""


def handle_stop_signals(handler: SignalHandler) -> dict[signal.Signals, Any]:
    """Install a handler of STOP_SIGNALS, except for those that the parent process ignores, as nohup does; return the handlers before."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    heard = {number: each for number, each in before.items() if each is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, handler)
    return heard


class StopSignals:
    """Makes stop signals raise StopRequestedError, until a part of the command that saves on a stop handles them."""

    def __init__(self) -> None:
        self._raised = False

    def install(self) -> None:
        """Install the handlers."""
        handle_stop_signals(self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        cause = f": {CPU_LIMIT_TEXT}" if number == signal.SIGXCPU else ""
        text = f"stopped by {signal.Signals(number).name}{cause}; run the same command again"
        # Compiled code that is importing, such as pydantic's, replaces or swallows the exception. Nothing is to be
        # cleaned up then. The second signal ends a command that has swallowed the first one elsewhere.
        if self._raised or _is_importing(frame):
            with suppress(OSError):  # the terminal may be gone
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


def exit_on_user_error(main: Callable[[], int | None]) -> Callable[[], int]:
    """Wrap a command: a `UserError`, or a file without permission, is logged to stderr, and the exit status is 2.

    A stop signal ends it with a sentence and EXIT_STOPPED.
    If the reader of stdout has closed the pipe, as `| head` does, or the terminal is gone, the command exits with
    128 + SIGPIPE and no message.
    """

    @functools.wraps(main)
    def command() -> int:
        try:
            status = main() or 0
            # Otherwise the interpreter flushes at its exit, and a closed pipe is reported there as an
            # unhandled error.
            sys.stdout.flush()
            return status
        except UserError as error:
            from nnlo_lib.core.logging_setup import get_logger  # `nnlo --help` does not need it

            get_logger(__name__).error(error)
            return EXIT_USER_ERROR
        except StopRequestedError as stop:
            from nnlo_lib.core.logging_setup import get_logger

            get_logger(__name__).info(stop)
            return EXIT_STOPPED
        except OSError as error:
            if isinstance(error, PermissionError) and error.filename:
                from nnlo_lib.core.file_access import cause_of
                from nnlo_lib.core.logging_setup import get_logger

                get_logger(__name__).error(
                    f"{error.filename}: {cause_of(error, Path(os.fsdecode(error.filename)))}"
                )
                return EXIT_USER_ERROR
            # The broken pipe can be another one, for example to a child process.
            if error.errno not in (errno.EPIPE, errno.EIO) or not _is_unread(sys.stdout.fileno()):
                raise
            return EXIT_BROKEN_PIPE
        finally:
            # What a terminal that is gone, a closed pipe or a full disk refuses, the interpreter flushes again at its exit,
            # which then has the status 120; /dev/null accepts it.
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except OSError:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    return command


def _is_unread(pipe: int) -> bool:
    """Return True if the other end of a pipe, or a terminal, is closed."""
    poll = select.poll()
    # No event needs to be requested: poll always reports POLLERR, which means that the read end is closed.
    poll.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def error_headline(text: str, limit: int = HEADLINE_CHARS) -> str:
    """Return an error as one line of at most `limit` characters.

    Of tracebacks, only the exception of the last one is kept, with its notes. The middle of a longer line is left out,
    because the beginning of an error tells its place and the end its cause.
    """
    first, found, _ = text.partition(TRACEBACK_START)
    if found:
        text = first + "\n".join(_after_frames(text.rpartition(TRACEBACK_START)[2]))
    return without_middle(mask(_joined(text)), limit)


def without_middle(text: str, limit: int) -> str:
    """Return the text, or its beginning and its end if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    kept = limit - len(CUT)
    head = int(HEAD_SHARE * kept)
    return f"{text[:head].rstrip()}{CUT}{text[len(text) - kept + head :].lstrip()}"


def _after_frames(trace: str) -> Iterator[str]:
    """Yield the lines that follow the frames of a traceback: the exception, its text and its notes."""
    lines = iter(trace.splitlines())
    for line in lines:
        if line and not line.startswith(" "):
            yield line
            break
    yield from lines


def _joined(text: str) -> str:
    """Return lines as one line; a semicolon separates lines that end without punctuation."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return (
        "".join(line + (" " if line[-1] in ".,:;({[" else "; ") for line in lines).rstrip().removesuffix(";")
    )
