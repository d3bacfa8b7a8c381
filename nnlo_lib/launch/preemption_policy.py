"""Policies for a job preempted by the scheduler, after its ranks have saved; light to import for parsers."""

from typing import Literal, get_args

PreemptionPolicy = Literal["wait", "requeue", "exit"]
PREEMPTION_POLICIES: tuple[PreemptionPolicy, ...] = get_args(PreemptionPolicy)
