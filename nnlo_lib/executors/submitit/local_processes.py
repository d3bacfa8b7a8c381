"""Jobs of submitit on this machine, where there is no Slurm: nothing waits."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from submitit import AutoExecutor

from nnlo_lib.config import Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.job_record import JobRecord
from nnlo_lib.search.study.trial import FoldTask

NO_TIME_LIMIT_MIN = 60 * 24 * 365  # minutes: nobody limits what runs here
SAVE_TIMEOUT_S = 900.0  # seconds for all to save and stop
SIGNAL_RETRY_INTERVAL_S = 2.0  # seconds until a job is told again: before it trains it does not listen


@dataclass(frozen=True)
class LocalProcessJob(TrialJob):
    """A job that sees the GPUs that its driver saw, whatever submitit shows it. visible: CUDA_VISIBLE_DEVICES."""

    visible: str | None

    @classmethod
    def of(cls, job: TrialJob) -> "LocalProcessJob":
        """Return the job as one of this machine."""
        return cls(job.folder, job.task, job.launcher, job.attempt, os.environ.get("CUDA_VISIBLE_DEVICES"))

    def __call__(self) -> int:
        """Train; return train_leaf's status."""
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update({} if self.visible is None else {"CUDA_VISIBLE_DEVICES": self.visible})
        return super().__call__()


class LocalProcessQueue:
    """Processes of this machine, which outlive their driver if that is killed."""

    poll_interval_s = 0.5

    def __init__(self, search: Path, launcher: str) -> None:
        self._search, self.launcher = search, launcher

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        """Start a job."""
        executor = AutoExecutor(
            SearchPaths(self._search).submitit, "local", local_python=shlex.quote(sys.executable)
        )
        executor.update_parameters(timeout_min=NO_TIME_LIMIT_MIN, stderr_to_stdout=True)
        with _ignoring_sigint():
            number = executor.submit(LocalProcessJob.of(job)).job_id
        return JobRecord("local", number, ProcessIdentity.from_pid(int(number)))

    def find(self, leaf: FoldTask) -> JobRecord | None:
        """Return the job that is on disk, if it lives."""
        ticket = JobRecord.read(self._search, leaf)
        return ticket if ticket and _lives(ticket) else None

    def ended(self, tickets: Iterable[JobRecord]) -> set[JobRecord]:
        """Return those whose process has ended."""
        return {ticket for ticket in tickets if not _lives(ticket)}

    def was_cancelled(self, ticket: JobRecord) -> bool:
        """Nobody knows here."""
        return False

    def shut_down(self, tickets: Iterable[JobRecord]) -> str:
        """Ask all to save and stop, and wait for them; who does not is ended."""
        left, end = set(tickets), time.monotonic() + SAVE_TIMEOUT_S
        while left := left - self.ended(left):
            _send(signal.SIGTERM if time.monotonic() < end else signal.SIGKILL, left)
            told = time.monotonic()
            while left - self.ended(left) and time.monotonic() < told + SIGNAL_RETRY_INTERVAL_S:
                time.sleep(0.05)
        return "all jobs were saved"


def _lives(ticket: JobRecord) -> bool:
    return ticket.process is not None and ticket.process.is_local and not ticket.process.is_dead


def _send(number: signal.Signals, tickets: Iterable[JobRecord]) -> None:
    for ticket in tickets:
        with suppress(ProcessLookupError):
            os.kill(int(ticket.job), number)


@contextmanager
def _ignoring_sigint() -> Iterator[None]:
    """Start what does not hear Ctrl-C, until it listens itself: submitit's would end a training that is not saved."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
