"""The end of a training as a user sees it: last line, exit status, record, and decision on a retry."""

import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass

from helpers.training_process import Training, processes_of
from nnlo_lib.state.attempts import Attempt, read_attempts
from nnlo_lib.state.retry_policy import reason_not_to_retry

TIMEOUT_S = 200
RUNTIME_MIN = 60


@dataclass(frozen=True)
class EndedTraining:
    """The end of a training.

    Attributes:
        output: all output.
        last_line: last line of the output, without numbers that differ from run to run.
        status: exit status.
        reason: reason of the last attempt in attempts.jsonl; empty if there is none.
        next_attempt: decision of the retry policy on the recorded attempt.
    """

    output: str
    last_line: str
    status: int
    reason: str
    next_attempt: str

    @classmethod
    def of(cls, run: Training, output: str, status: int) -> "EndedTraining":
        """Return the end of the last command of a training."""
        attempts = read_attempts(run.job / "state")[-1:]
        lines = output.strip().splitlines() or [""]
        reason = attempts[0].reason if attempts else ""
        return cls(output, without_numbers(lines[-1], run), status, reason, next_attempt(attempts))


def wait_for_end(run: Training, process: "subprocess.Popen[str]") -> EndedTraining:
    """Wait until a training ends, and check that no process of its folder is left."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        left = processes_of(run.folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert left == [], output
    return EndedTraining.of(run, output, process.returncode)


def next_attempt(attempts: list[Attempt]) -> str:
    """Return the decision on the next attempt after the last recorded one: none, no, yes, or yes but not always."""
    if not attempts or attempts[-1].is_finished:
        return "none"
    if reason_not_to_retry(attempts, RUNTIME_MIN):
        return "no"
    return (
        "yes, but not twice at one step"
        if reason_not_to_retry([*attempts, *attempts], RUNTIME_MIN)
        else "yes"
    )


def without_numbers(line: str, run: Training) -> str:
    """Return a line with placeholders for processes, hosts, seconds and sizes."""
    line = line.replace(str(run.folder), "<folder>")
    line = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "<host>", line)
    line = re.sub(r"\b(process|kill) \d+", r"\1 <pid>", line)
    line = re.sub(r"\b\d\.\d{4}\b", "<n>", line)
    line = re.sub(r"\b\d+ MiB", "<n> MiB", line)
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "<time>", line)
    line = re.sub(
        r"waited for an? [\w -]+,", "waited for <call>,", line
    )  # where the others were at that moment
    line = re.sub(r"cannot write \S+:", "cannot write <file>:", line)  # the first file that found no space
    line = re.sub(r"on rank \d", "on rank <n>", line)
    return re.sub(r"\b\d+ s\b", "<n> s", line)
