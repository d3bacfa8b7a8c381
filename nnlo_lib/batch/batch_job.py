"""A job of Slurm or LSF, and the questions that a process asks about it: minutes left, reason of a stop, requeue."""

import getpass
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.batch.job_states import COMPLETING, Fate, JobReport, fate_of_state, reason_of_state
from nnlo_lib.batch.pending_reasons import remedy_of
from nnlo_lib.batch.scheduler_query import (
    UNKNOWN_DECISION,
    Command,
    StopDecision,
    query_scheduler,
    request_scheduler,
    run_command,
)
from nnlo_lib.batch.slurm_job import SlurmRecord, slurm_exit_reason, slurm_stop_decision
from nnlo_lib.core.errors import ExitReason

COMMANDS = {"slurm": "scontrol", "lsf": "bjobs"}  # by which a host of the batch system is recognized


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

    @classmethod
    def of_this_site(cls, number: str | None) -> "BatchJob | None":
        """Return the job with this number in the batch system of this host, or None without either."""
        scheduler = next((name for name, command in COMMANDS.items() if shutil.which(command)), None)
        return cls.from_id(scheduler, number)

    @staticmethod
    def current_restarts() -> int:
        """Return how often Slurm has queued the job of this process again; 0 if that is unknown."""
        # Jobs of Snakemake do not have the variable, because the plugin that starts the command removes it.
        return int(os.environ.get("SLURM_RESTART_COUNT") or 0)

    def minutes_left(self) -> float | None:
        """Return the minutes that the job may still run, or None if the scheduler does not report them."""
        if self.scheduler == "lsf":
            return parse_minutes(query_scheduler("bjobs", "-noheader", "-o", "time_left", self.job_id))
        # The number of the last task of an array is the number of the array, of which squeue lists all tasks.
        listed = query_scheduler("squeue", "--noheader", f"--jobs={self.job_id}", "--format=%A|%L")
        rows = dict(line.strip().split("|", 1) for line in listed.splitlines() if "|" in line)
        return parse_minutes(rows.get(self.job_id, ""))

    def exit_reason(self) -> ExitReason:
        """Return why the job, or its last run before a requeue, ended; `killed` if that is unknown."""
        if self.scheduler == "slurm":
            return slurm_exit_reason(self.job_id)
        text = query_scheduler("bjobs", "-a", "-noheader", "-o", "exit_reason", self.job_id)
        return reason_of_state(text) or "killed"

    def stop_decision(self) -> StopDecision:
        """Return why the scheduler stops this running job, after a process of the job has received SIGTERM.

        LSF reports the reason only after the end of the job.
        """
        return slurm_stop_decision(self.job_id) if self.scheduler == "slurm" else UNKNOWN_DECISION

    def has_ended(self) -> bool:
        """Return True if the scheduler reports that the job has ended and is not queued again."""
        if self.scheduler == "lsf":
            state = query_scheduler("bjobs", "-a", "-noheader", "-o", "stat", self.job_id)
            return not fate_of_state(state).is_active
        record = SlurmRecord.query(self.job_id)
        return record is not None and not record.is_live and record.state != COMPLETING

    def output_file(self) -> Path | None:
        """Return the file of the job's standard output, or None if the scheduler does not report it."""
        record = SlurmRecord.query(self.job_id) if self.scheduler == "slurm" else None
        return record.output if record else None

    def requeue(self) -> str:
        """Requeue the running job; return the error of the scheduler, or an empty string on success."""
        if self.scheduler == "lsf":
            return request_scheduler("brequeue", self.job_id)
        record = SlurmRecord.query(self.job_id)
        return request_scheduler("scontrol", "requeue", (record and record.own_number) or self.job_id)


def parse_minutes(text: str) -> float | None:
    """Return the minutes of Slurm's time [days-][[hours:]minutes:]seconds or LSF's `hours:minutes L`, or None for other text."""
    if lsf := re.match(r"(\d+):(\d+) [A-Z]", text):
        return int(lsf[1]) * 60.0 + int(lsf[2])
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)", text)
    if not found:
        return None
    days, first, second, seconds = (int(part or 0) for part in found.groups())
    # Two numbers before the seconds are hours and minutes; a single one is minutes, but in the first group.
    hours, minutes = (first, second) if found[3] else (0, first)
    return (days * 24 + hours) * 60 + minutes + seconds / 60


@dataclass(frozen=True)
class ListedJob:
    """An unfinished job in the list of a batch system.

    Attributes:
        reason: why the job is pending, in the words of the batch system.
        start: expected start of a pending job, in the words of the batch system; empty if unknown.
        minutes_left: minutes that a running job may still run; None if unknown.
        remedy: what a user must do so that the job starts; empty if waiting is enough, or if that is unknown.
    """

    fate: Fate
    reason: str
    start: str
    minutes_left: float | None
    remedy: str = ""


def list_own_jobs(run: Command = run_command) -> dict[str, ListedJob] | None:
    """Return the unfinished jobs of this user by number, by one query; None without a batch system or an answer."""
    if shutil.which(COMMANDS["slurm"]):
        answer = run("squeue", f"--user={os.getuid()}", "--array", "--noheader", "--format=%A|%T|%r|%S|%L")
    elif shutil.which(COMMANDS["lsf"]):
        fields = "jobid stat pend_reason estimated_start_time time_left delimiter='|'"
        answer = run("bjobs", "-noheader", "-u", getpass.getuser(), "-o", fields)
    else:
        return None
    if answer is None or (
        answer.returncode and "No unfinished job found" not in answer.stdout + answer.stderr
    ):
        return None
    rows = (line.strip().split("|") for line in answer.stdout.splitlines())
    return {row[0]: _listed(*row) for row in rows if len(row) == 5}


def _listed(number: str, state: str, reason: str, start: str, left: str) -> ListedJob:
    reason, start = ("" if text in ("N/A", "None", "-") else text for text in (reason.rstrip(";"), start))
    is_pending = (fate := fate_of_state(state)) is Fate.PENDING
    minutes = parse_minutes(left)
    remedy = remedy_of(JobReport(fate, state, reason), number) or ""
    return ListedJob(fate, reason, start if is_pending else "", None if is_pending else minutes, remedy)
