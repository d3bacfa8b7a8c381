"""The reasons why an attempt ends."""

from typing import Literal

ExitReason = Literal[
    "finished", "preempted", "time limit", "canceled", "node failure", "out of memory", "diverged", "bad input",
    "code error", "disk full", "killed", "crashed", "peer lost",
]  # fmt: skip
RESUMABLE_REASONS = ("preempted", "time limit")  # the ranks saved and stopped; the job may be submitted again
STOPPED_REASONS = (*RESUMABLE_REASONS, "canceled")  # the ranks stopped on request
PERMANENT_REASONS = ("code error", "bad input", "diverged")  # the next attempt would fail again
TRANSIENT_REASONS = ("killed", "crashed", "peer lost", "node failure")  # the next attempt may succeed
