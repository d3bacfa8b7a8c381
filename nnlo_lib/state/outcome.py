"""Outcome of an attempt: reason, message and exit status."""

from dataclasses import dataclass

from nnlo_lib.core.error_headline import error_headline
from nnlo_lib.core.errors import EXIT_USER_ERROR
from nnlo_lib.core.exit_reason import RESUMABLE_REASONS, ExitReason
from nnlo_lib.core.stop_request import EXIT_STOPPED

EXIT_PREEMPTED = EXIT_STOPPED  # the state is saved, too


@dataclass(frozen=True)
class AttemptOutcome:
    """Outcome of an attempt.

    Attributes:
        reason: reason of the end.
        error: message for the user.
        signal: name of the signal that stopped the attempt, or an empty string.
        is_user_error: whether the user must correct the cause.
        details: text for the log only: the traceback of the rank that failed, or the last lines of the launcher.
        may_requeue: whether the job may ask the scheduler to queue it again.
    """

    reason: ExitReason
    error: str = ""
    signal: str = ""
    is_user_error: bool = False
    details: str = ""
    may_requeue: bool = False

    @property
    def exit_status(self) -> int:
        """Exit status: 0 if finished, 75 if saved and stopped, 2 for a user error, else 1."""
        if self.reason in RESUMABLE_REASONS:
            return EXIT_PREEMPTED
        return EXIT_USER_ERROR if self.is_user_error else int(self.reason != "finished")

    @property
    def error_summary(self) -> str | None:
        """Error as one line (of a traceback, the exception); None if empty or the run is resumable."""
        return (error_headline(self.error) or None) if self.reason not in RESUMABLE_REASONS else None
