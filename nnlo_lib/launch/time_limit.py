"""Time limit of an attempt in a batch job."""

import time

from nnlo_lib.core.batch_system import BatchJob

NEAR_LIMIT_S = 120.0  # seconds; half of the limit if that is shorter
SCHEDULER_WARNING_S = 180.0  # seconds; Slurm warns up to 30 s early, and counts from the start of the job


class TimeLimit:
    """Time limit, counted from the construction of this object.

    Args:
        minutes: the limit; None queries the scheduler.
        job: the batch job; without a job there is no limit.
    """

    def __init__(self, minutes: float | None, job: BatchJob | None) -> None:
        limit_min = (minutes or job.minutes_left()) if job else None
        self.total_seconds = 60 * limit_min if limit_min else float("inf")
        self._end = time.monotonic() + self.total_seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit (infinite without a limit)."""
        return self._end - time.monotonic()

    @property
    def is_near(self) -> bool:
        """Whether so little time is left that the attempt must stop."""
        return self.seconds_left < min(NEAR_LIMIT_S, self.total_seconds / 2)

    @property
    def is_in_warning_window(self) -> bool:
        """Whether a signal may be the scheduler's warning of the limit."""
        return self.seconds_left < SCHEDULER_WARNING_S
