"""What a search asks of a place where submitit's jobs wait and run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from nnlo_lib.config import Run
from nnlo_lib.search.trial import Leaf
from nnlo_lib.tune.leaf_job import LeafJob
from nnlo_lib.tune.ticket import Ticket

FOLDER = "submitit"  # of all that submitit writes, in that of the search


class Queue(Protocol):
    """Takes jobs. launcher: of their ranks; look: seconds between two looks at all of them."""

    launcher: str
    look: float

    def submit(self, job: LeafJob, run: Run, memory: int) -> Ticket:
        """Queue a job; memory: in MB. Raises UserError if it is refused."""

    def find(self, leaf: Leaf) -> Ticket | None:
        """Return the job of a leaf that waits or runs, if there is one."""

    def ended(self, tickets: Iterable[Ticket]) -> set[Ticket]:
        """Return those that neither wait nor run; none if nobody knows."""

    def was_cancelled(self, ticket: Ticket) -> bool:
        """Tell whether a person ended a job."""

    def leave(self, tickets: Iterable[Ticket]) -> str:
        """Let jobs go on without their driver, or stop them, saved; say which."""


def log_of(search: Path, ticket: Ticket) -> Path:
    """Return where a job's words go."""
    return search / FOLDER / f"{ticket.job}_0_log.out"
