"""A job of Slurm or LSF, and the questions that a process asks about it: minutes left, reason of a stop, requeue."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.batch.job_states import JobReport, reason_of_state
from nnlo_lib.batch.lsf_queue import LsfQueue, lsf_record
from nnlo_lib.batch.scheduler_query import UNKNOWN_DECISION, StopDecision, request_scheduler
from nnlo_lib.batch.slurm_job import last_end, slurm_record, slurm_stop_decision
from nnlo_lib.batch.slurm_queue import SlurmQueue
from nnlo_lib.core.errors import ExitReason


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
        return cls.from_id(_scheduler_of_host(), number)

    @staticmethod
    def current_restarts() -> int:
        """Return how often Slurm has queued the job of this process again; 0 if that is unknown."""
        # Jobs of Snakemake do not have the variable, because the plugin that starts the command removes it.
        return int(os.environ.get("SLURM_RESTART_COUNT") or 0)

    def minutes_left(self) -> float | None:
        """Return the minutes that the job may still run, or None if the scheduler does not report them."""
        report = self._look()
        return report.minutes_left if report else None

    def exit_reason(self) -> ExitReason:
        """Return why the job, or its last run before a requeue, ended; `killed` if that is unknown."""
        end = last_end(self.job_id) if self.scheduler == "slurm" else ""
        if not end and (report := self._look()):
            # Slurm queues a job again after a preemption or a node failure, or because a user requests it.
            end = report.end or ("REQUEUED" if report.restarts else "")
        return reason_of_state(end) or "killed"

    def stop_decision(self) -> StopDecision:
        """Return why the scheduler stops this running job, after a process of the job has received SIGTERM.

        LSF reports the reason only after the end of the job.
        """
        return slurm_stop_decision(self.job_id) if self.scheduler == "slurm" else UNKNOWN_DECISION

    def has_ended(self) -> bool:
        """Return True if the scheduler reports that the job has ended and is not queued again."""
        report = self._look()
        return report is not None and not report.fate.is_active

    def output_file(self) -> Path | None:
        """Return the file of the job's standard output, or None if the scheduler does not report it."""
        report = self._look() if self.scheduler == "slurm" else None
        return report.output if report else None

    def requeue(self) -> str:
        """Requeue the running job; return the error of the scheduler, or an empty string on success."""
        if self.scheduler == "lsf":
            return request_scheduler("brequeue", self.job_id)
        report = self._look()
        return request_scheduler("scontrol", "requeue", (report and report.own_number) or self.job_id)

    def _look(self) -> JobReport | None:
        return slurm_record(self.job_id) if self.scheduler == "slurm" else lsf_record(self.job_id)


def _scheduler_of_host() -> str | None:
    commands = {"slurm": "scontrol", "lsf": "bjobs"}
    return next((name for name, command in commands.items() if shutil.which(command)), None)


def list_own_jobs() -> dict[str, JobReport] | None:
    """Return the unfinished jobs of this user by number, by one query; None without a batch system or an answer."""
    queues = {"slurm": SlurmQueue, "lsf": LsfQueue}
    scheduler = _scheduler_of_host()
    found = queues[scheduler]().own_jobs() if scheduler else None
    return found and {number: report for number, report in found.items() if report.fate.is_active}
