"""The clock of each run: wall clock of the machine, or virtual clock of the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.report.formatting import listing
from nnlo_lib.state.finished_run import FinishedRun

MAX_NAMED_RUNS = 3  # runs; above this number, a sentence gives their number instead of their names


@dataclass(frozen=True)
class TimeBase:
    """The runs of a report, by the clock of their seconds."""

    virtual: tuple[str, ...]
    measured: tuple[str, ...]

    @property
    def mixed(self) -> bool:
        """Whether some runs have virtual and others measured seconds, so that times cannot be compared."""
        return bool(self.virtual and self.measured)

    @property
    def word(self) -> str:
        """`virtual` if the seconds of every run are virtual, else an empty string."""
        return "" if self.measured else "virtual"

    @property
    def note(self) -> str:
        """Sentence that names the runs with virtual seconds and explains them, or an empty string."""
        if not self.virtual:
            return ""
        runs = self._virtual_runs_text if self.measured else "every run"
        return (
            f"Simulated: the ranks of {runs} took turns in one process. Their seconds and samples per second are "
            "virtual: they follow the machine model of parallel.simulation, not the speed of the host."
        )

    @property
    def _virtual_runs_text(self) -> str:
        return listing(self.virtual) if len(self.virtual) <= MAX_NAMED_RUNS else f"{len(self.virtual)} runs"

    def unit(self, run: str) -> str:
        """Return the unit of a run's seconds."""
        return "virtual s" if run in self.virtual else "s"


def time_base_of(jobs: Sequence[FinishedRun]) -> TimeBase:
    """Return the runs of `jobs`, split into simulated and measured ones."""
    # All jobs of a run have the same transport.
    transports = {job.run: job.transport for job in jobs}
    virtual = tuple(run for run, transport in transports.items() if transport == "simulated")
    return TimeBase(virtual, tuple(run for run in transports if run not in virtual))
