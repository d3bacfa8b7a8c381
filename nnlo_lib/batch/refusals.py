"""Refused submissions and pending jobs: what passes with time, when to submit again, and what the user must change."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from nnlo_lib.batch.job_states import Fate, JobReport

FIRST_DELAY_S, MAX_DELAY_S = 10.0, 300.0  # before the next submission
INTERVAL_S = 300.0  # between lines about jobs that wait for their turn
# JOB REASON CODES of squeue(1), by what a user must do. A name stands for all reasons that contain the name.
REMEDIES: tuple[tuple[str, str], ...] = (
    ("PartitionTimeLimit", "lower resources.runtime, or set resources.partition"),
    ("MaxWallDuration", "lower resources.runtime"),
    ("PartitionNodeLimit", "lower resources.nodes, or set resources.partition"),
    ("PartitionDown", "set resources.partition, or ask the site when the partition opens"),
    ("PartitionInactive", "set resources.partition, or ask the site when the partition opens"),
    ("AccountNotAllowed", "set resources.account or resources.partition"),
    ("InvalidAccount", "set resources.account"),
    ("AssociationJobLimit", "wait for your other jobs, or ask the site for a higher limit"),
    ("PerJob", "ask for less (parallel, resources), or ask the site for a higher limit"),
    ("InvalidQOS", "set nnlo-slurm-qos in the profile"),
    ("QOSNotAllowed", "set nnlo-slurm-qos in the profile, or resources.partition"),
    ("BadConstraints", "ask for less (parallel, resources): no node can run the job"),
    ("DependencyNeverSatisfied", "scancel the job"),
    ("JobHeldUser", "scontrol release the job"),
    ("JobHeldAdmin", "ask the site why the job is held, then scontrol release"),
    ("launch failed requeued held", "ask the site about the node, then scontrol release"),
    ("ReqNodeNotAvail", "ask the site when the nodes return"),
    ("suspended by", "bresume the job"),  # LSF: PSUSP
)
# sbatch(1), slurm_strerror; in the order in which they are looked for: Slurm says "job submit limit" in its sentence about
# all limits, so the name of the limit must come first.
_LOST_ANSWERS = r"Socket timed out|Failed in sending/receiving a message|Zero Bytes were transmitted|Communication connection failure|timed out|Connection reset"
_TRANSIENT = (
    r"\w*(Max|Grp)Submit\w*|MaxSubmitPA|"
    + _LOST_ANSWERS
    + r"|Unable to contact slurm controller|Connection refused|"
    r"temporarily unable|Resource temporarily unavailable|standby mode|too many (jobs|requests|connections|open files)|Rate limit|"
    # LSF
    r"User has reached the|pending job( slot)? threshold|reached its job limit|No job Id can be used now|"
    r"LSF is (down|processing)|Cannot connect to LSF|daemon not responding|Failed in an LSF library call|mbatchd is"
)
UNKNOWN_QUEUE = r"No such queue|[Qq]ueue .*(not open|closed)|User cannot use the queue"
# Pattern of the scheduler's words: what is wrong, and the key that says it. Slurm first, then LSF.
_PERMANENT = (
    (r"Invalid account|account .*appears to be invalid|invalid account", "the account is unknown or not yours", "resources.account or SBATCH_ACCOUNT"),
    (r"Invalid partition|invalid partition", "the partition does not exist or is closed to you", "resources.partition or SBATCH_PARTITION"),
    (r"Requested time limit is invalid|Invalid time|MaxWallDuration", "the time limit is longer than allowed", "resources.runtime"),
    (r"Invalid generic resource|Invalid GRES", "the GPUs asked for do not exist here", "parallel.gpus_per_rank"),
    (r"[Nn]ode count specification|Node count", "the number of nodes is not allowed", "resources.nodes"),
    (r"Memory specification|Requested node configuration is not available|CPU count|More processors requested", "no node has the cores, memory or GPUs asked for", "resources.mem_mb, resources.nodes or parallel"),
    (r"Invalid qos|Invalid QOS", "the QOS is unknown or not yours", "nnlo-slurm-qos of the profile"),
    (r"job submit limit, user's size and/or time limits|Max\w+PerJob|AssocMax|QOSMax", "the job exceeds a limit of your account or QOS", "resources"),
    (UNKNOWN_QUEUE, "the queue does not exist or is closed to you", "resources.partition or LSB_DEFAULTQUEUE"),
    (r"RUNLIMIT|Bad run limit", "the time limit is longer than the queue allows", "resources.runtime"),
    (r"[Pp]roject .*(not|invalid)|Bad project", "the project is unknown or not yours", "resources.account or LSB_DEFAULTPROJECT"),
    (r"Bad resource requirement|MEMLIMIT|Too many processors", "no host has the slots, memory or GPUs asked for", "resources.mem_mb or parallel"),
)  # fmt: skip


class RefusalKind(Enum):
    """Whether the same request may be accepted later."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Refusal:
    """A refused submission.

    Attributes:
        kind: whether to submit again.
        sentence: reason and remedy, without the command that was refused.
        may_be_submitted: whether the answer was lost, so that the job may be in the queue nevertheless.
    """

    kind: RefusalKind
    sentence: str
    may_be_submitted: bool = False


def classify_refusal(text: str, known: str = "") -> Refusal:
    """Return what a refused submission means.

    Args:
        text: output of the scheduler's command.
        known: values that would be accepted, for the sentence about a mistake.
    """
    words = _scheduler_words(text)
    if re.search(_TRANSIENT, text, re.IGNORECASE):
        return Refusal(RefusalKind.TRANSIENT, words, bool(re.search(_LOST_ANSWERS, text, re.IGNORECASE)))
    for pattern, wrong, key in _PERMANENT:
        if re.search(pattern, text):
            hint = f"; {known}" if known else ""
            return Refusal(RefusalKind.PERMANENT, f"{wrong}: set {key} ({words}{hint})")
    return Refusal(RefusalKind.UNKNOWN, words)


def _scheduler_words(text: str) -> str:
    """Return the scheduler's own sentences, without names of commands and empty phrases, on one line."""
    message = text.partition("sbatch call:")[0].partition("The error message was")[2] or text
    lines = [
        re.sub(r"^\W*(sbatch|bsub): (error: )?", "", line.strip(" '.\"")) for line in message.splitlines()
    ]
    return "; ".join(
        dict.fromkeys(
            re.sub(r"^(Batch job submission failed|allocation failure): ", "", line) for line in lines if line
        )
    )


@dataclass
class Backoff:
    """Delays that double from FIRST_DELAY_S to MAX_DELAY_S; `succeeded` starts again."""

    _next: float = FIRST_DELAY_S

    def delay(self) -> float:
        """Return the seconds to wait before the next submission."""
        delay, self._next = self._next, min(2 * self._next, MAX_DELAY_S)
        return delay

    def succeeded(self) -> None:
        """Start with the shortest delay again."""
        self._next = FIRST_DELAY_S


def remedy_of(reason: str) -> str:
    """Return what a user must do so that a job with this pending reason starts; empty if waiting is enough."""
    compact = reason.replace("_", "")
    return next((remedy for name, remedy in REMEDIES if name in compact or name in reason), "")


class PendingExplainer:
    """Lines about pending jobs.

    Args:
        say: prints a line.
        clock: returns seconds.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._named: set[tuple[str, str]] = set()
        self._next_line = clock() + INTERVAL_S

    def explain(self, reports: Mapping[str, JobReport], names: Mapping[str, str]) -> None:
        """Print what is new about the pending jobs; `reports` and `names`, what each job does, are by number."""
        pending = {number: each.reason for number, each in reports.items() if each.fate is Fate.PENDING}
        for number, reason in pending.items():
            if (remedy := remedy_of(reason)) and (number, reason) not in self._named:
                self._named.add((number, reason))
                self._say(f"job {number} ({names[number]}) does not start: {reason}; {remedy}")
        others = Counter(reason or "no reason given" for reason in pending.values() if not remedy_of(reason))
        if others and self._clock() >= self._next_line:
            self._next_line = self._clock() + INTERVAL_S
            reasons = ", ".join(f"{reason} {count}" for reason, count in others.most_common())
            self._say(f"jobs that wait in the queue: {others.total()} ({reasons})")
