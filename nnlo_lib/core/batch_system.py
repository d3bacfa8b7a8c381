"""Queries to the batch system of this process. A query that fails counts as one with empty output."""

import os
import re
import subprocess
from dataclasses import dataclass

from nnlo_lib.core.exit_reason import ExitReason

QUERY_TIMEOUT_S = 15  # the scheduler may be overloaded or unreachable
SLURM_EXIT_REASONS: dict[str, ExitReason] = {
    "NODE_FAIL": "node failure", "BOOT_FAIL": "node failure", "TIMEOUT": "time limit", "DEADLINE": "time limit",
    "PREEMPTED": "preempted", "REQUEUED": "preempted", "OUT_OF_MEMORY": "out of memory",
}  # fmt: skip
LSF_EXIT_REASONS: dict[str, ExitReason] = {
    "TERM_MEMLIMIT": "out of memory", "TERM_SWAP": "out of memory", "TERM_RUNLIMIT": "time limit",
    "TERM_PREEMPT": "preempted", "TERM_REQUEUE": "preempted", "TERM_WINDOW": "preempted", "TERM_LOAD": "preempted",
}  # fmt: skip


@dataclass(frozen=True)
class BatchJob:
    """A job of a batch system; `scheduler` is `slurm` or `lsf`."""

    scheduler: str
    job_id: str

    @classmethod
    def current(cls) -> "BatchJob | None":
        """Return the job of this process, or None outside a batch system."""
        return cls.from_id("slurm", os.environ.get("SLURM_JOB_ID")) or cls.from_id(
            "lsf", os.environ.get("LSB_JOBID")
        )

    @classmethod
    def from_id(cls, scheduler: str | None, number: str | None) -> "BatchJob | None":
        """Return the job with this number, or None if the scheduler or the number is missing."""
        return cls(scheduler, number) if scheduler and number else None

    def minutes_left(self) -> float | None:
        """Return the minutes that the job may still run, or None if the scheduler does not report them."""
        if self.scheduler == "slurm":
            return _parse_slurm_minutes(
                query_scheduler("squeue", "--noheader", f"--jobs={self.job_id}", "--format=%L")
            )
        return _parse_lsf_minutes(query_scheduler("bjobs", "-noheader", "-o", "time_left", self.job_id))

    def exit_reason(self) -> ExitReason:
        """Return why the job, or its last run before a requeue, ended; `killed` if that is unknown."""
        states = self._query_exit_states()
        # Slurm appends the user to a state, `CANCELLED by 1000`; words that are no known state are skipped.
        if self.scheduler == "slurm":
            ends = [SLURM_EXIT_REASONS[state] for state in states.split() if state in SLURM_EXIT_REASONS]
            return ends[-1] if ends else "killed"
        return next(
            (reason for term, reason in LSF_EXIT_REASONS.items() if states.startswith(term)), "killed"
        )

    def was_cancelled(self) -> bool:
        """Return True if a person canceled the job."""
        # Only the last run counts: a job can have run again after an earlier run of it was canceled.
        last = self._query_exit_states().rpartition("\n")[2]
        return last.startswith("CANCELLED" if self.scheduler == "slurm" else "TERM_OWNER")

    def _query_exit_states(self) -> str:
        if self.scheduler == "slurm":
            # -D also lists the runs before a requeue, oldest first; -X leaves out the steps of the job.
            return query_scheduler("sacct", f"--jobs={self.job_id}", "-D", "-X", "-n", "-P", "-o", "State")
        return query_scheduler("bjobs", "-a", "-noheader", "-o", "exit_reason", self.job_id)

    def requeue(self) -> str:
        """Requeue the running job; return the error of the scheduler, or an empty string on success."""
        command = ["scontrol", "requeue"] if self.scheduler == "slurm" else ["brequeue"]
        try:
            done = _run(*command, self.job_id)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


def _run(*command: str, timeout: float = QUERY_TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def query_scheduler(*command: str, timeout: float = QUERY_TIMEOUT_S) -> str:
    """Return the output of a command of the scheduler, or an empty string if it fails or takes too long.

    Args:
        *command: command and its arguments.
        timeout: limit in seconds.
    """
    try:
        return _run(*command, timeout=timeout).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _parse_slurm_minutes(text: str) -> float | None:
    """Return the minutes of a time [days-][[hours:]minutes:]seconds, or None for other text."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)", text)
    if not found:
        return None
    days, first, second, seconds = (int(part or 0) for part in found.groups())
    # Two numbers before the seconds are hours and minutes; a single one is minutes, but in the first group.
    hours, minutes = (first, second) if found[3] else (0, first)
    return (days * 24 + hours) * 60 + minutes + seconds / 60


def _parse_lsf_minutes(text: str) -> float | None:
    """Return the minutes of a time hours:minutes, which LSF ends with a letter, or None for other text."""
    found = re.match(r"(\d+):(\d+)", text)
    return int(found[1]) * 60.0 + int(found[2]) if found else None
