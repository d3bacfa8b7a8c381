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
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.process import Process
from nnlo_lib.tune.leaf_job import LeafJob
from nnlo_lib.tune.queue import FOLDER
from nnlo_lib.tune.ticket import Ticket

YEAR = 60 * 24 * 365  # minutes: nobody limits what runs here
PATIENCE = 900.0  # seconds for all to save and stop
AGAIN = 2.0  # seconds until a job is told again: before it trains it does not listen


@dataclass(frozen=True)
class HomeJob(LeafJob):
    """A job that sees the GPUs that its driver saw, whatever submitit shows it. visible: CUDA_VISIBLE_DEVICES."""

    visible: str | None

    @classmethod
    def of(cls, job: LeafJob) -> "HomeJob":
        """Return the job as one of this machine."""
        return cls(job.folder, job.leaf, job.launcher, job.attempt, os.environ.get("CUDA_VISIBLE_DEVICES"))

    def __call__(self) -> int:
        """Train; return train_leaf's status."""
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update({} if self.visible is None else {"CUDA_VISIBLE_DEVICES": self.visible})
        return super().__call__()


class HomeQueue:
    """Processes of this machine, which outlive their driver if that is killed."""

    look = 0.5

    def __init__(self, search: Path, launcher: str) -> None:
        self._search, self.launcher = search, launcher

    def submit(self, job: LeafJob, run: Run, memory: int) -> Ticket:
        """Start a job."""
        executor = AutoExecutor(self._search / FOLDER, "local", local_python=shlex.quote(sys.executable))
        executor.update_parameters(timeout_min=YEAR, stderr_to_stdout=True)
        with _deaf():
            number = executor.submit(HomeJob.of(job)).job_id
        return Ticket("local", number, Process.of(int(number)))

    def find(self, leaf: Leaf) -> Ticket | None:
        """Return the job that is on disk, if it lives."""
        ticket = Ticket.read(self._search, leaf)
        return ticket if ticket and _lives(ticket) else None

    def ended(self, tickets: Iterable[Ticket]) -> set[Ticket]:
        """Return those whose process has ended."""
        return {ticket for ticket in tickets if not _lives(ticket)}

    def was_cancelled(self, ticket: Ticket) -> bool:
        """Nobody knows here."""
        return False

    def leave(self, tickets: Iterable[Ticket]) -> str:
        """Ask all to save and stop, and wait for them; who does not is ended."""
        left, end = set(tickets), time.monotonic() + PATIENCE
        while left := left - self.ended(left):
            _send(signal.SIGTERM if time.monotonic() < end else signal.SIGKILL, left)
            told = time.monotonic()
            while left - self.ended(left) and time.monotonic() < told + AGAIN:
                time.sleep(0.05)
        return "all jobs were saved"


def _lives(ticket: Ticket) -> bool:
    return ticket.process is not None and ticket.process.is_here and not ticket.process.is_dead


def _send(number: signal.Signals, tickets: Iterable[Ticket]) -> None:
    for ticket in tickets:
        with suppress(ProcessLookupError):
            os.kill(int(ticket.job), number)


@contextmanager
def _deaf() -> Iterator[None]:
    """Start what does not hear Ctrl-C, until it listens itself: submitit's would end a training that is not saved."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
