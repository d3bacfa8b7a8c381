"""States of jobs in Slurm and LSF: the fate of a job in each state, and why a run ended that ended in the state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from nnlo_lib.core.errors import ExitReason


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
    """Report of a batch system about one job.

    Attributes:
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
COMPLETING = "COMPLETING"  # slurmctld has ended the run, but processes of it still exist
NO_ANSWER = QueueReport({}, is_complete=False)

_UNKNOWN = (Fate.RUNNING, None)  # no answer, or a state of a newer batch system: the job may still run
# Fate, and exit reason of a run that ended in this state; None if the state does not tell it.
JOB_STATES: dict[str, tuple[Fate, ExitReason | None]] = {
    # squeue(1) and sacct(1), JOB STATE CODES, from Slurm 20.11 to 25.05.
    "PENDING": (Fate.PENDING, None),
    "CONFIGURING": (Fate.PENDING, None),
    "POWER_UP_NODE": (Fate.PENDING, None),
    "REQUEUED": (Fate.PENDING, "preempted"),  # in the accounting, the end of the run before
    "REQUEUE_HOLD": (Fate.PENDING, None),
    "REQUEUE_FED": (Fate.PENDING, None),
    "RESV_DEL_HOLD": (Fate.PENDING, None),
    "SPECIAL_EXIT": (Fate.PENDING, None),
    "RUNNING": (Fate.RUNNING, None),
    COMPLETING: (Fate.RUNNING, None),
    "EXPEDITING": (Fate.RUNNING, None),
    "RESIZING": (Fate.RUNNING, None),
    "SIGNALING": (Fate.RUNNING, None),
    "STAGE_OUT": (Fate.RUNNING, None),
    "STOPPED": (Fate.RUNNING, None),
    "SUSPENDED": (Fate.RUNNING, None),
    "UPDATE_DB": (Fate.RUNNING, None),
    "COMPLETED": (Fate.DONE, None),
    "FAILED": (Fate.FAILED, None),
    "TIMEOUT": (Fate.FAILED, "time limit"),
    "DEADLINE": (Fate.FAILED, "time limit"),
    "OUT_OF_MEMORY": (Fate.FAILED, "out of memory"),
    # A job that Slurm queues again is PENDING under the same number; these states remain if Slurm does not.
    PREEMPTED: (Fate.INTERRUPTED, "preempted"),
    "NODE_FAIL": (Fate.INTERRUPTED, "node failure"),
    "BOOT_FAIL": (Fate.INTERRUPTED, "node failure"),
    "LAUNCH_FAILED": (Fate.INTERRUPTED, None),
    "RECONFIG_FAIL": (Fate.INTERRUPTED, None),
    "REVOKED": (Fate.INTERRUPTED, None),  # of a federation: another cluster started the job
    "CANCELLED": (Fate.CANCELED, "canceled"),
    # bjobs(1), JOB STATUS, of LSF 10.1; `bjobs -N` shows the last two.
    "PEND": (Fate.PENDING, None),
    "PSUSP": (Fate.PENDING, None),  # bstop of a pending job, brequeue -H
    "PROV": (Fate.PENDING, None),  # a host of the job is switched on
    "WAIT": (Fate.PENDING, None),  # member of a chunk job
    "RUN": (Fate.RUNNING, None),
    "SSUSP": (Fate.RUNNING, None),
    "USUSP": (Fate.RUNNING, None),  # bstop of a running job; bresume continues it
    # LSF has lost the host. The job may still run there, and is queued again (-r) or ends as soon as LSF knows.
    "UNKWN": (Fate.RUNNING, None),
    "RUNKWN": (Fate.RUNNING, None),
    "ZOMBI": (Fate.RUNNING, None),
    "DONE": (Fate.DONE, None),
    "EXIT": (Fate.FAILED, None),  # one of the termination reasons below tells more
    # After the end of a job with status 0.
    "POST_DONE": (Fate.DONE, None),
    "POST_ERR": (Fate.DONE, None),
    # Termination reasons of bjobs, bhist and bacct in LSF 10.1; all others are failures of the job.
    "TERM_MEMLIMIT": (Fate.FAILED, "out of memory"),
    "TERM_SWAP": (Fate.FAILED, "out of memory"),
    "TERM_RUNLIMIT": (Fate.FAILED, "time limit"),
    "TERM_PREEMPT": (Fate.INTERRUPTED, "preempted"),
    "TERM_WINDOW": (Fate.INTERRUPTED, "preempted"),
    "TERM_LOAD": (Fate.INTERRUPTED, "preempted"),
    "TERM_OTHER": (Fate.INTERRUPTED, "preempted"),
    "TERM_REQUEUE_OWNER": (Fate.INTERRUPTED, "preempted"),
    "TERM_REQUEUE_ADMIN": (Fate.INTERRUPTED, "preempted"),
    "TERM_CHKPNT": (Fate.INTERRUPTED, "preempted"),
    "TERM_MC_RECALL": (Fate.INTERRUPTED, "preempted"),
    "TERM_ZOMBIE": (Fate.INTERRUPTED, None),
    "TERM_REMOVE_HUNG_JOB": (Fate.INTERRUPTED, None),
    "TERM_RMS": (Fate.INTERRUPTED, None),
    "TERM_SLURM": (Fate.INTERRUPTED, None),
    "TERM_CSM_ALLOC": (Fate.INTERRUPTED, None),
    "TERM_KUBE": (Fate.INTERRUPTED, None),
    "TERM_OWNER": (Fate.CANCELED, "canceled"),
    "TERM_FORCE_OWNER": (Fate.CANCELED, "canceled"),
    "TERM_ADMIN": (Fate.CANCELED, "canceled"),
    "TERM_FORCE_ADMIN": (Fate.CANCELED, "canceled"),
    "TERM_BUCKET_KILL": (Fate.CANCELED, "canceled"),
}

# State in which a COMPLETING job will end, by its reason (job_reason_codes of Slurm's manual). slurmctld sets both at once, but shows
# the state only after the last process has ended. `scancel` and a preemption set no reason.
COMPLETING_REASONS = {
    "NodeDown": "NODE_FAIL",
    "PartitionDown": "NODE_FAIL",  # the partition was deleted under the job
    "SystemFailure": "NODE_FAIL",
    "TimeLimit": "TIMEOUT",
    "InactiveLimit": "TIMEOUT",
    "DeadLine": "DEADLINE",
    "OutOfMemory": "OUT_OF_MEMORY",
    "JobLaunchFailure": "FAILED",
    "NonZeroExitCode": "FAILED",
    "RaisedSignal": "FAILED",
}


def fate_of_state(state: str) -> Fate:
    """Return the fate of a state; an unknown state, for example of a newer Slurm, is RUNNING."""
    return JOB_STATES.get(_word(state), _UNKNOWN)[0]


def reason_of_state(state: str) -> ExitReason | None:
    """Return why a run ended that ended in a state, or with a termination reason of LSF; None if that is not known."""
    return JOB_STATES.get(_term(state) or _word(state), _UNKNOWN)[1]


def lsf_report(state: str, exit_reason: str = "", pending_reason: str = "") -> JobReport:
    """Return the report of a job of LSF, from its state in the words of bjobs and the text of its termination reason."""
    fate = fate_of_state(state)
    if fate is not Fate.FAILED:
        return JobReport(fate, state, pending_reason if fate is Fate.PENDING else "")
    if not (term := _term(exit_reason)):
        return JobReport(fate, state)
    fate, reason = JOB_STATES.get(term, (fate, None))
    return JobReport(fate, PREEMPTED if reason == "preempted" else f"{state} ({term})")


def _word(state: str) -> str:
    # sacct writes `CANCELLED by 1000`, and marks a state that it cut off with `+`.
    return (state.split() or [""])[0].rstrip("+")


def _term(text: str) -> str:
    found = re.search(r"TERM_[A-Z_]*[A-Z]", text)
    return found[0] if found else ""
