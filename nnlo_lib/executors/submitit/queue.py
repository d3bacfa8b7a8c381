"""What a search asks of a place where submitit's jobs wait and run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from nnlo_lib.config import Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.job_record import JobRecord
from nnlo_lib.search.study.trial import FoldTask


class JobQueue(Protocol):
    """Takes jobs. launcher: of their ranks; look: seconds between two looks at all of them."""

    launcher: str
    poll_interval_s: float

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        """Queue a job; memory: in MB. Raises UserError if it is refused."""

    def find(self, leaf: FoldTask) -> JobRecord | None:
        """Return the job of a leaf that waits or runs, if there is one."""

    def ended(self, tickets: Iterable[JobRecord]) -> set[JobRecord]:
        """Return those that neither wait nor run; none if nobody knows."""

    def was_cancelled(self, ticket: JobRecord) -> bool:
        """Tell whether a person ended a job."""

    def shut_down(self, tickets: Iterable[JobRecord]) -> str:
        """Let jobs go on without their driver, or stop them, saved; say which."""


def log_of(search: Path, ticket: JobRecord) -> Path:
    """Return where a job's words go."""
    return SearchPaths(search).submitit / f"{ticket.job}_0_log.out"
