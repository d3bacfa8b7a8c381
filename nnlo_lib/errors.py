"""The one kind of error that is the user's to mend: shown as a sentence, exit status 2."""

import functools
import sys
from collections.abc import Callable

EXIT_USER_ERROR = 2


class UserError(Exception):
    """Say what is wrong, where, and what to do about it."""


def reported(main: Callable[[], int | None]) -> Callable[[], int]:
    """Turn a `UserError` raised by a command into its sentence on stderr and exit status 2."""

    @functools.wraps(main)
    def command() -> int:
        try:
            return main() or 0
        except UserError as error:
            print(f"nnlo: error: {error}", file=sys.stderr)
            return EXIT_USER_ERROR

    return command


class DivergedError(UserError):
    """Training cannot go on, for the loss is no number any more."""


class NotSavedError(Exception):
    """A run that had to stop could not be saved; the last good checkpoint is as it was."""


class InvariantError(Exception):
    """An algorithm broke what it promises to keep; the message says which, by how much and when."""
