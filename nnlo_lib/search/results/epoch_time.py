"""Pace of trainings, from which the duration of further trainings is estimated."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Measured pace of trainings, in seconds of the wall clock.

    Attributes:
        startup_s: seconds from the start of a job to its first step.
        epoch_s: seconds per epoch, without start-up.
    """

    startup_s: float
    epoch_s: float

    def seconds(self, jobs: int, epochs: int) -> float:
        """Return the estimated seconds of some jobs that train `epochs` epochs together."""
        return jobs * self.startup_s + epochs * self.epoch_s

    def __str__(self) -> str:
        start = f" and {self.startup_s:.3g} s per start" if self.startup_s else ""
        return f"{self.epoch_s:.3g} s per epoch{start}"
