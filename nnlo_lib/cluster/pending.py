"""Why jobs wait in the queue: once for a reason that does not pass by itself, now and then one line for all others."""

import time
from collections import Counter
from collections.abc import Callable, Mapping

from nnlo_lib.batch.job_states import Fate, JobReport

INTERVAL_S = 300.0  # seconds between lines about jobs that wait for their turn
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
PASSING = ("None", "", "Priority", "Resources", "BeginTime", "Cleaning", "Prolog", "QOSMaxJobsPerUserLimit")


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
        """Print what is new about the pending jobs.

        Args:
            reports: report of each job, by number.
            names: what each job does, by number.
        """
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
