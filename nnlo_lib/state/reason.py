"""Why an attempt to train ended."""

from typing import Literal

Reason = Literal[
    "finished", "preempted", "time limit", "node failure", "out of memory", "diverged", "bad input", "code error",
    "disk full", "killed", "peer lost",
]  # fmt: skip
YIELDED = ("preempted", "time limit")  # saved and stopped when asked
FINAL = ("code error", "bad input", "diverged")  # it would end like this again
CHANCE = ("killed", "peer lost", "node failure")  # it need not end like this again
