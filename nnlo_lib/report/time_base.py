"""Which clock a run's seconds come from: that of a machine, or the virtual one of the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.report.formatting import listing
from nnlo_lib.state.finished_run import FinishedRun

MAX_NAMED_RUNS = 3  # runs; more are not named one by one


@dataclass(frozen=True)
class TimeBase:
    """The runs of a report by the clock they were timed with."""

    virtual: tuple[str, ...]
    measured: tuple[str, ...]

    @property
    def mixed(self) -> bool:
        """Whether some seconds are virtual and others are not, so that they cannot be compared."""
        return bool(self.virtual and self.measured)

    @property
    def word(self) -> str:
        """What the seconds of every run are: virtual, or nothing to be said."""
        return "" if self.measured else "virtual"

    @property
    def note(self) -> str:
        """Say whose seconds are virtual and what that means."""
        if not self.virtual:
            return ""
        who = self._virtual_runs_text if self.measured else "every run"
        return (
            f"Simulated: the ranks of {who} took turns in one process. Their seconds and samples per second are "
            "those of the virtual machine that parallel.simulation describes, not of the machine that ran them."
        )

    @property
    def _virtual_runs_text(self) -> str:
        return listing(self.virtual) if len(self.virtual) <= MAX_NAMED_RUNS else f"{len(self.virtual)} runs"

    def unit(self, run: str) -> str:
        """Return the unit of a run's seconds."""
        return "virtual s" if run in self.virtual else "s"


def time_base_of(jobs: Sequence[FinishedRun]) -> TimeBase:
    """Return which runs were simulated and which were not."""
    transports = {job.run: job.transport for job in jobs}
    virtual = tuple(run for run, transport in transports.items() if transport == "simulated")
    return TimeBase(virtual, tuple(run for run in transports if run not in virtual))
