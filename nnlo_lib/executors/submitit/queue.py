"""Interface of a queue for submitit jobs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from nnlo_lib.config import Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.job_record import JobRecord
from nnlo_lib.search.study.trial import FoldTask


class JobQueue(Protocol):
    """Queue in which the jobs of a search wait and run.

    Attributes:
        launcher: command that starts the ranks of a job.
        poll_interval_s: seconds between two checks of all jobs.
    """

    launcher: str
    poll_interval_s: float

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        """Submit a job.

        Args:
            job: job that trains a fold task.
            run: run of the fold task, which determines the other resources.
            memory: requested memory in MB.

        Raises:
            UserError: if the queue refuses the job.
            TransientRefusalError: if the queue may accept the job later.
        """

    def find(self, fold_task: FoldTask) -> JobRecord | None:
        """Return the waiting or running job of a fold task, or None if it has no job.

        Raises:
            TransientRefusalError: if the queue does not respond.
        """

    def ended(self, job_records: Iterable[JobRecord]) -> set[JobRecord]:
        """Return the jobs that neither wait nor run; an empty set if the queue does not respond."""

    def was_cancelled(self, job_record: JobRecord) -> bool:
        """Return True if a job is known to have been canceled."""

    def was_preempted(self, job_record: JobRecord) -> bool:
        """Return True if the queue is known to have ended a job in favor of another job."""

    def shut_down(self, job_records: Iterable[JobRecord]) -> str:
        """Let the jobs continue without their driver, or save and stop them; return a message for the user."""


def log_of(search: Path, job_record: JobRecord) -> Path:
    """Return the path of a job's log."""
    return SearchPaths(search).submitit / f"{job_record.job}_0_log.out"
