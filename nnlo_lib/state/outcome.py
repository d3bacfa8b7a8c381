"""How an attempt ended, for the exit status and for a person."""

from dataclasses import dataclass

from nnlo_lib.core.errors import EXIT_USER_ERROR
from nnlo_lib.core.exit_reason import RESUMABLE_REASONS, ExitReason

EXIT_PREEMPTED = 75  # EX_TEMPFAIL: saved, run the same command again


@dataclass(frozen=True)
class AttemptOutcome:
    """error: what a person reads. signal: which one stopped it, if one did. usage: the error is the user's mistake."""

    reason: ExitReason
    error: str = ""
    signal: str = ""
    is_user_error: bool = False

    @property
    def exit_status(self) -> int:
        """Exit status: 0 finished, 75 saved and stopped, 2 the user's mistake, 1 anything else."""
        if self.reason in RESUMABLE_REASONS:
            return EXIT_PREEMPTED
        return EXIT_USER_ERROR if self.is_user_error else int(self.reason != "finished")

    @property
    def error_summary(self) -> str | None:
        """What the record keeps: of a traceback its last line, which names the error."""
        lines = self.error.strip().splitlines()
        return lines[-1] if lines and self.reason not in RESUMABLE_REASONS else None
