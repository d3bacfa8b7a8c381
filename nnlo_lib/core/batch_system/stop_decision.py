"""The scheduler's decision on a job whose processes have received a stop signal."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StopDecision:
    """Decision of the scheduler on a running job.

    Attributes:
        reason: why the scheduler stops the job.
        in_grace_time: whether the job is selected for preemption but not ended yet; it may then requeue itself.
    """

    reason: Literal["preempted", "canceled", "time limit"]
    in_grace_time: bool = False


# Without an answer of the scheduler, an attempt too many is better than a training that is not resumed.
UNKNOWN_DECISION = StopDecision("preempted")
