"""The one kind of error that is the user's to mend: shown as a sentence, exit status 2."""

import functools
import os
import select
import signal
import sys
from collections.abc import Callable

EXIT_USER_ERROR = 2
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE


class UserError(Exception):
    """Say what is wrong, where, and what to do about it."""


def exit_on_user_error(main: Callable[[], int | None]) -> Callable[[], int]:
    """Turn a `UserError` raised by a command into its sentence on stderr and exit status 2.

    Where nobody reads on, as behind `| head`, the command ends without a word.
    """

    @functools.wraps(main)
    def command() -> int:
        try:
            status = main() or 0
            sys.stdout.flush()
            return status
        except UserError as error:
            from nnlo_lib.core.logging_setup import get_logger  # `nnlo --help` does without

            get_logger(__name__).error(error)
            return EXIT_USER_ERROR
        except BrokenPipeError:
            if not _is_unread(sys.stdout.fileno()):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            return EXIT_BROKEN_PIPE

    return command


def _is_unread(pipe: int) -> bool:
    """Tell whether the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


class DivergedError(UserError):
    """Training cannot go on, for the loss is no number any more."""


class CheckpointNotSavedError(Exception):
    """A run that had to stop could not be saved; the last good checkpoint is as it was."""


class InvariantError(Exception):
    """An algorithm broke what it promises to keep; the message says which, by how much and when."""
