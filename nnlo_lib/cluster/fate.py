"""What became of a job, as far as the workflow is concerned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Fate(Enum):
    """Stage of a job; every state of Slurm and of LSF belongs to one."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    # Ended by the batch system for a reason that is not the job's: preempted, node lost, purged without a trace.
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"

    @property
    def is_active(self) -> bool:
        """Whether the job may still run."""
        return self in (Fate.PENDING, Fate.RUNNING)


@dataclass(frozen=True)
class JobReport:
    """What is known about one job.

    Attributes:
        fate: stage of the job.
        state: state in the words of the batch system.
        reason: why the job is pending, in the words of the batch system; an empty string if unknown.
    """

    fate: Fate
    state: str
    reason: str = ""


@dataclass(frozen=True)
class QueueReport:
    """Answer of a batch system to one look.

    Attributes:
        jobs: the jobs that it knows, by number.
        is_complete: whether every source answered, so that a job that is not in `jobs` is unknown to all of them.
    """

    jobs: Mapping[str, JobReport] = field(default_factory=dict)
    is_complete: bool = True


PREEMPTED = "PREEMPTED"  # state of a job that the batch system ended for another, in the words of Slurm
NO_ANSWER = QueueReport({}, is_complete=False)
