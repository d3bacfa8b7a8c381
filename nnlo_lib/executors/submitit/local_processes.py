"""Submitit jobs as processes of a machine without Slurm; they start at once."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from submitit import AutoExecutor

from nnlo_lib.config import Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.job_record import JobRecord
from nnlo_lib.search.study.trial import FoldTask

NO_TIME_LIMIT_MIN = 60 * 24 * 365  # a year: local jobs have no time limit
SAVE_TIMEOUT_S = 900.0  # for all jobs to save and exit
SIGNAL_RETRY_INTERVAL_S = 2.0  # between two signals: a job ignores signals until it trains


@dataclass(frozen=True)
class LocalProcessJob(TrialJob):
    """A job that sees the same GPUs as its driver, whatever CUDA_VISIBLE_DEVICES submitit sets.

    Attributes:
        visible: CUDA_VISIBLE_DEVICES of the driver; None if it is not set.
    """

    visible: str | None

    @classmethod
    def of(cls, job: TrialJob) -> "LocalProcessJob":
        """Return the job with the visible GPUs of this process."""
        return cls(job.folder, job.task, job.launcher, job.attempt, os.environ.get("CUDA_VISIBLE_DEVICES"))

    def __call__(self) -> int:
        """Train; return the status of `train_fold_task`."""
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update({} if self.visible is None else {"CUDA_VISIBLE_DEVICES": self.visible})
        return super().__call__()


class LocalProcessQueue:
    """Queue of processes on this machine, which continue to run if their driver is killed."""

    poll_interval_s = 0.5

    def __init__(self, search: Path, launcher: str) -> None:
        self._search, self.launcher = search, launcher

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        executor = AutoExecutor(
            SearchPaths(self._search).submitit, "local", local_python=shlex.quote(sys.executable)
        )
        executor.update_parameters(timeout_min=NO_TIME_LIMIT_MIN, stderr_to_stdout=True)
        with _ignoring_sigint():
            number = executor.submit(LocalProcessJob.of(job)).job_id
        # The id of a local job is the pid of its controller process.
        return JobRecord("local", number, ProcessIdentity.from_pid(int(number)))

    def find(self, fold_task: FoldTask) -> JobRecord | None:
        """Return the recorded job of a fold task, or None if its process is not running."""
        job_record = JobRecord.read(self._search, fold_task)
        return job_record if job_record and _is_running(job_record) else None

    def ended(self, job_records: Iterable[JobRecord]) -> set[JobRecord]:
        """Return the jobs that have no running process."""
        return {job_record for job_record in job_records if not _is_running(job_record)}

    def was_cancelled(self, job_record: JobRecord) -> bool:
        """Return False: the cancellation of a local process is not recorded."""
        return False

    def was_preempted(self, job_record: JobRecord) -> bool:
        """Return False: no process ends in favor of another."""
        return False

    def shut_down(self, job_records: Iterable[JobRecord]) -> str:
        """Ask all jobs to save and exit; kill jobs that exceed the timeout. Return a message."""
        # Records in a shared folder can name processes of other users, which this user cannot end.
        left = {record for record in job_records if record.process is not None and record.process.is_own}
        end = time.monotonic() + SAVE_TIMEOUT_S
        while left := left - self.ended(left):
            _send(signal.SIGTERM if time.monotonic() < end else signal.SIGKILL, left)
            signaled_at = time.monotonic()
            while left - self.ended(left) and time.monotonic() < signaled_at + SIGNAL_RETRY_INTERVAL_S:
                time.sleep(0.05)
        return "all jobs were asked to save and have exited; run the same command again to resume"


def _is_running(job_record: JobRecord) -> bool:
    return job_record.process is not None and job_record.process.is_local and not job_record.process.is_dead


def _send(number: signal.Signals, job_records: Iterable[JobRecord]) -> None:
    for job_record in job_records:
        if job_record.process is not None:
            job_record.process.send_signal(number)


@contextmanager
def _ignoring_sigint() -> Iterator[None]:
    """Ignore SIGINT in the processes started inside the context, until they install their own handlers.

    Otherwise, submitit's processes would end on Ctrl-C before the training is saved.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
