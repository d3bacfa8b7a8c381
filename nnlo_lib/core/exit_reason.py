"""Why an attempt to train ended."""

from typing import Literal

ExitReason = Literal[
    "finished", "preempted", "time limit", "node failure", "out of memory", "diverged", "bad input", "code error",
    "disk full", "killed", "peer lost",
]  # fmt: skip
RESUMABLE_REASONS = ("preempted", "time limit")  # saved and stopped when asked
PERMANENT_REASONS = ("code error", "bad input", "diverged")  # it would end like this again
TRANSIENT_REASONS = ("killed", "peer lost", "node failure")  # it need not end like this again
