"""Policies for a job preempted by the scheduler, after its ranks have saved; light to import for parsers."""

from typing import Literal, get_args

PreemptionPolicy = Literal["requeue", "exit"]
PREEMPTION_POLICIES: tuple[PreemptionPolicy, ...] = get_args(PreemptionPolicy)


def parse_preemption_policy(text: str) -> str:
    """Return the policy; `wait`, a policy of version 0.2 in profiles of users, is `requeue`."""
    return "requeue" if text == "wait" else text
