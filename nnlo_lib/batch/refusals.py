"""Refused submissions: what passes with time, and what the user must change."""

import re
from dataclasses import dataclass
from enum import Enum

# sbatch(1), slurm_strerror; in the order in which they are looked for: Slurm says "job submit limit" in its sentence about
# all limits, so the name of the limit must come first.
_LOST_ANSWERS = r"Socket timed out|Failed in sending/receiving a message|Zero Bytes were transmitted|Communication connection failure|timed out|Connection reset"
_TRANSIENT = (
    r"\w*(Max|Grp)Submit\w*|MaxSubmitPA|Unable to contact slurm controller|Connection refused|"
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
    """Whether the same request may be accepted later; after LOST and UNKNOWN, the job may be in the queue nevertheless."""

    TRANSIENT = "transient"
    LOST = "lost answer"  # the same request may be accepted later, too
    PERMANENT = "permanent"
    UNKNOWN = "unknown"

    @property
    def passes(self) -> bool:
        """Whether the same request may be accepted later."""
        return self in (RefusalKind.TRANSIENT, RefusalKind.LOST)


@dataclass(frozen=True)
class Refusal:
    """A refused submission; `sentence` has reason and remedy, without the command that was refused."""

    kind: RefusalKind
    sentence: str


def classify_refusal(text: str, known: str = "") -> Refusal:
    """Return what the output of a submission means; `known`: values that would be accepted, for the sentence about a mistake."""
    words = _scheduler_words(text)
    if re.search(_LOST_ANSWERS, text, re.IGNORECASE):
        return Refusal(RefusalKind.LOST, words)
    if re.search(_TRANSIENT, text, re.IGNORECASE):
        return Refusal(RefusalKind.TRANSIENT, words)
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
