"""The time that the scheduler gives an attempt."""

import time

from nnlo_lib.core.batch_system import BatchJob

NEAR_LIMIT_S = 120.0  # seconds, or half of a shorter limit
SCHEDULER_WARNING_S = 180.0  # seconds: Slurm warns up to half a minute too early, and counts from when the job began, not from now


class TimeLimit:
    """So many minutes from now; asked from the scheduler of a job if not told. Without a job nothing limits."""

    def __init__(self, minutes: float | None, job: BatchJob | None) -> None:
        told = (minutes or job.minutes_left()) if job else None
        self.total_seconds = 60 * told if told else float("inf")
        self._end = time.monotonic() + self.total_seconds

    @property
    def seconds_left(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    @property
    def is_near(self) -> bool:
        """Whether it is time to stop."""
        return self.seconds_left < min(NEAR_LIMIT_S, self.total_seconds / 2)

    @property
    def is_in_warning_window(self) -> bool:
        """Whether a signal may be the scheduler's warning of the limit."""
        return self.seconds_left < SCHEDULER_WARNING_S
