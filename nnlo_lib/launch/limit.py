"""The time that the scheduler gives an attempt."""

import time

from nnlo_lib.state.scheduler import Job

NEAR = 120.0  # seconds, or half of a shorter limit
WARNED = 180.0  # seconds: Slurm warns up to half a minute too early, and counts from when the job began, not from now


class Limit:
    """So many minutes from now; asked from the scheduler of a job if not told. Without a job nothing limits."""

    def __init__(self, minutes: float | None, job: Job | None) -> None:
        told = (minutes or job.minutes_left()) if job else None
        self.seconds = 60 * told if told else float("inf")
        self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    @property
    def is_near(self) -> bool:
        """Whether it is time to stop."""
        return self.left < min(NEAR, self.seconds / 2)

    @property
    def may_have_warned(self) -> bool:
        """Whether a signal may be the scheduler's warning of the limit."""
        return self.left < WARNED
