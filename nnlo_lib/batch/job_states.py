"""States of jobs in Slurm and LSF: the fate of a job in each state, and why a run ended that ended in the state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

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
    """A job as a batch system reports it; what it does not report keeps the default."""

    fate: Fate
    state: str  # state in the words of the batch system
    reason: str = ""  # why the job is pending, in the words of the batch system
    start: str = ""  # expected start of a pending job, in the words of the batch system
    minutes_left: float | None = None  # minutes that the job may still run
    # state in which the current run ends or has ended, or the last run of a job that is queued again; empty if it runs
    end: str = ""
    is_preempted: bool = False  # whether the job has been selected for preemption since its start
    restarts: int = 0  # how often the job was queued again
    output: Path | None = None  # file of the standard output
    # number for requests that concern this job alone: by the number of its last task, Slurm means a whole array
    own_number: str = ""


@dataclass(frozen=True)
class QueueReport:
    """Answer of a batch system to one look."""

    jobs: Mapping[str, JobReport] = field(default_factory=dict)  # the jobs that it knows, by number
    # whether every source answered, so that a job that is not in `jobs` is unknown to all of them
    is_complete: bool = True


PREEMPTED = "PREEMPTED"  # state of a job that the batch system ended for another, in the words of Slurm
COMPLETING = "COMPLETING"  # slurmctld has ended the run, but processes of it still exist
NO_ANSWER = QueueReport({}, is_complete=False)

_UNKNOWN = (Fate.RUNNING, None)  # no answer, or a state of a newer batch system: the job may still run
# Fate, exit reason of a run that ended in one of the states (None if they do not tell it), and the states.
_TABLE: tuple[tuple[Fate, ExitReason | None, str], ...] = (
    # squeue(1) and sacct(1), JOB STATE CODES, from Slurm 20.11 to 25.05.
    (Fate.PENDING, None, "PENDING CONFIGURING POWER_UP_NODE REQUEUE_HOLD REQUEUE_FED RESV_DEL_HOLD SPECIAL_EXIT"),
    (Fate.PENDING, "preempted", "REQUEUED"),  # in the accounting, the end of the run before
    (Fate.RUNNING, None, f"RUNNING {COMPLETING} EXPEDITING RESIZING SIGNALING STAGE_OUT STOPPED SUSPENDED UPDATE_DB"),
    (Fate.DONE, None, "COMPLETED"),
    (Fate.FAILED, None, "FAILED"),
    (Fate.FAILED, "time limit", "TIMEOUT DEADLINE"),
    (Fate.FAILED, "out of memory", "OUT_OF_MEMORY"),
    # A job that Slurm queues again is PENDING under the same number; these states remain if Slurm does not.
    (Fate.INTERRUPTED, "preempted", PREEMPTED),
    (Fate.INTERRUPTED, "node failure", "NODE_FAIL BOOT_FAIL"),
    (Fate.INTERRUPTED, None, "LAUNCH_FAILED RECONFIG_FAIL"),
    (Fate.INTERRUPTED, None, "REVOKED"),  # of a federation: another cluster started the job
    (Fate.CANCELED, "canceled", "CANCELLED"),
    # bjobs(1), JOB STATUS, of LSF 10.1. PSUSP: bstop of a pending job, brequeue -H; PROV: a host of the job is switched on;
    # WAIT: member of a chunk job; USUSP: bstop of a running job.
    (Fate.PENDING, None, "PEND PSUSP PROV WAIT"),
    (Fate.RUNNING, None, "RUN SSUSP USUSP"),
    # LSF has lost the host. The job may still run there, and is queued again (-r) or ends as soon as LSF knows.
    (Fate.RUNNING, None, "UNKWN RUNKWN ZOMBI"),
    (Fate.DONE, None, "DONE POST_DONE POST_ERR"),  # the last two of `bjobs -N`, after the end of a job with status 0
    (Fate.FAILED, None, "EXIT"),  # one of the termination reasons below tells more
    # Termination reasons of bjobs, bhist and bacct in LSF 10.1; all others are failures of the job.
    (Fate.FAILED, "out of memory", "TERM_MEMLIMIT TERM_SWAP"),
    (Fate.FAILED, "time limit", "TERM_RUNLIMIT"),
    (Fate.INTERRUPTED, "preempted", "TERM_PREEMPT TERM_WINDOW TERM_LOAD TERM_OTHER TERM_REQUEUE_OWNER TERM_REQUEUE_ADMIN"),
    (Fate.INTERRUPTED, "preempted", "TERM_CHKPNT TERM_MC_RECALL"),
    (Fate.INTERRUPTED, None, "TERM_ZOMBIE TERM_REMOVE_HUNG_JOB TERM_RMS TERM_SLURM TERM_CSM_ALLOC TERM_KUBE"),
    (Fate.CANCELED, "canceled", "TERM_OWNER TERM_FORCE_OWNER TERM_ADMIN TERM_FORCE_ADMIN TERM_BUCKET_KILL"),
)  # fmt: skip
JOB_STATES = {state: (fate, reason) for fate, reason, states in _TABLE for state in states.split()}

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


def lsf_report(
    state: str, exit_reason: str = "", pending_reason: str = "", start: str = "", left: str = ""
) -> JobReport:
    """Return the report of a job of LSF, from the words of bjobs."""
    fate, minutes = fate_of_state(state), parse_minutes(left)
    if fate is Fate.PENDING:
        return JobReport(fate, state, pending_reason.rstrip(";"), start)
    if fate is not Fate.FAILED or not (term := _term(exit_reason)):
        return JobReport(fate, state, minutes_left=minutes, end="" if fate.is_active else state)
    fate, reason = JOB_STATES.get(term, (fate, None))
    state = PREEMPTED if reason == "preempted" else f"{state} ({term})"
    return JobReport(fate, state, end=state)


def parse_minutes(text: str) -> float | None:
    """Return the minutes of Slurm's time [days-][[hours:]minutes:]seconds or LSF's `hours:minutes L`, or None for other text."""
    if lsf := re.match(r"(\d+):(\d+) [A-Z]", text):
        return int(lsf[1]) * 60.0 + int(lsf[2])
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)", text)
    if not found:
        return None
    days, first, second, seconds = (int(part or 0) for part in found.groups())
    # Two numbers before the seconds are hours and minutes; a single one is minutes, but in the first group.
    hours, minutes = (first, second) if found[3] else (0, first)
    return (days * 24 + hours) * 60 + minutes + seconds / 60


def _word(state: str) -> str:
    # sacct writes `CANCELLED by 1000`, and marks a state that it cut off with `+`.
    return (state.split() or [""])[0].rstrip("+")


def _term(text: str) -> str:
    found = re.search(r"TERM_[A-Z_]*[A-Z]", text)
    return found[0] if found else ""
