"""The batch system that this process runs under, and what it can be asked. Whoever does not answer knows nothing."""

import os
import re
import subprocess
from dataclasses import dataclass

from nnlo_lib.core.exit_reason import ExitReason

QUERY_TIMEOUT_S = 15  # seconds for an answer
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
    """A job of a batch system."""

    scheduler: str
    job_id: str

    @classmethod
    def current(cls) -> "BatchJob | None":
        """Return the job that this process belongs to, if any."""
        return cls.from_id("slurm", os.environ.get("SLURM_JOB_ID")) or cls.from_id(
            "lsf", os.environ.get("LSB_JOBID")
        )

    @classmethod
    def from_id(cls, scheduler: str | None, number: str | None) -> "BatchJob | None":
        """Return the job of that number, if there is one."""
        return cls(scheduler, number) if scheduler and number else None

    def minutes_left(self) -> float | None:
        """Ask how long the job may still run."""
        if self.scheduler == "slurm":
            return _parse_slurm_minutes(_ask("squeue", "--noheader", f"--jobs={self.job_id}", "--format=%L"))
        return _parse_lsf_minutes(_ask("bjobs", "-noheader", "-o", "time_left", self.job_id))

    def exit_reason(self) -> ExitReason:
        """Ask why the job, or its last run before it was queued again, ended; `killed` if nobody knows."""
        told = self._query_exit_states()
        if self.scheduler == "slurm":
            ends = [SLURM_EXIT_REASONS[state] for state in told.split() if state in SLURM_EXIT_REASONS]
            return ends[-1] if ends else "killed"
        return next((reason for term, reason in LSF_EXIT_REASONS.items() if told.startswith(term)), "killed")

    def was_cancelled(self) -> bool:
        """Ask whether a person ended the job."""
        last = self._query_exit_states().rpartition("\n")[2]
        return last.startswith("CANCELLED" if self.scheduler == "slurm" else "TERM_OWNER")

    def _query_exit_states(self) -> str:
        if self.scheduler == "slurm":
            return _ask("sacct", f"--jobs={self.job_id}", "-D", "-X", "-n", "-P", "-o", "State")
        return _ask("bjobs", "-a", "-noheader", "-o", "exit_reason", self.job_id)

    def requeue(self) -> str:
        """Put the running job back into its queue; return why that was refused, empty if it was not."""
        command = ["scontrol", "requeue"] if self.scheduler == "slurm" else ["brequeue"]
        try:
            done = _run(*command, self.job_id)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=QUERY_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _ask(*command: str) -> str:
    try:
        return _run(*command).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _parse_slurm_minutes(told: str) -> float | None:
    """Read [days-][[hours:]minutes:]seconds."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)", told)
    if not found:
        return None
    days, first, second, seconds = (int(part or 0) for part in found.groups())
    hours, minutes = (first, second) if found[3] else (0, first)
    return (days * 24 + hours) * 60 + minutes + seconds / 60


def _parse_lsf_minutes(told: str) -> float | None:
    """Read hours:minutes, which a letter follows."""
    found = re.match(r"(\d+):(\d+)", told)
    return int(found[1]) * 60.0 + int(found[2]) if found else None
