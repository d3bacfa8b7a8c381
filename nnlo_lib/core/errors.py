"""Exceptions of nnlo, and the exit status of commands: 2 after a UserError, which is logged to stderr."""

import functools
import os
import select
import signal
import sys
from collections.abc import Callable

from nnlo_lib.core.stop_request import EXIT_STOPPED, StopRequestedError

EXIT_USER_ERROR = 2
EXIT_PARTIAL_IMPORT = 3  # `nnlo import` printed an experiment that lacks options of its input
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE


class UserError(Exception):
    """An error that the user can correct; the message gives its location, its cause and the fix."""


# Errors of a user's function. sys.exit() in it would end nnlo without a message, or with the status 0.
USER_CODE_ERRORS = (Exception, SystemExit)


def exit_on_user_error(main: Callable[[], int | None]) -> Callable[[], int]:
    """Wrap a command: a `UserError` is logged to stderr, and the exit status is 2.

    A stop signal ends it with a sentence and EXIT_STOPPED.
    If the reader of stdout has closed the pipe, as `| head` does, the command exits with 128 + SIGPIPE and no
    message.
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
        except BrokenPipeError:
            # The broken pipe can be another one, for example to a child process.
            if not _is_unread(sys.stdout.fileno()):
                raise
            # The interpreter flushes the rest of the output at its exit; /dev/null accepts it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE

    return command


def _is_unread(pipe: int) -> bool:
    """Return True if the other end of a pipe is closed."""
    poll = select.poll()
    # No event needs to be requested: poll always reports POLLERR, which means that the read end is closed.
    poll.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


class DivergedError(UserError):
    """Training cannot continue because the loss, or the gradient, is not finite."""


class CheckpointNotSavedError(Exception):
    """A run that had to stop could not be saved; the last good checkpoint is unchanged."""


class InvariantError(Exception):
    """An algorithm violated its invariant; the message gives its name, the relative error and the step."""
