"""Why Slurm ended or stops a job: from the record of slurmctld, and from the accounting; each may be missing.

slurmctld removes the record MinJobAge seconds after the end of the job (300 s by default).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from nnlo_lib.batch.job_states import (
    COMPLETING,
    COMPLETING_REASONS,
    PREEMPTED,
    Fate,
    fate_of_state,
    reason_of_state,
)
from nnlo_lib.batch.scheduler_query import UNKNOWN_DECISION, StopDecision, query_scheduler
from nnlo_lib.core.errors import ExitReason

MAX_CLOCK_SKEW_S = 20  # between the hosts; the shortest time limit of Slurm is 60 s


@dataclass(frozen=True)
class SlurmRecord:
    """A job as `scontrol show job` prints it.

    Attributes:
        fields: values by name, without values that contain spaces.
        output: file of the job's standard output, or None if it is unknown.
    """

    fields: dict[str, str]
    output: Path | None

    @classmethod
    def query(cls, job_id: str) -> "SlurmRecord | None":
        """Return the record, or None if slurmctld does not respond or has removed it."""
        # A job array has a line for each task, also if the number is the one of its last task.
        lines = query_scheduler("scontrol", "--oneliner", "show", "job", job_id).splitlines()
        records = [cls.parse(line) for line in lines if "JobState=" in line]
        return next(
            (each for each in records if each.fields.get("JobId") == job_id), next(iter(records), None)
        )

    @classmethod
    def parse(cls, line: str) -> "SlurmRecord":
        """Parse a line of `scontrol --oneliner show job`."""
        fields: dict[str, str] = {}
        for name, value in re.findall(r"(?:^|\s)(\w+)=(\S*)", line):
            fields.setdefault(name, value)  # a comment of the user may repeat a name
        output = re.search(r" StdOut=(.+?)(?: \w+=|$)", line)
        # The name may be a pattern, in which `%j` stands for the number.
        name = output[1].strip().replace("%j", fields.get("JobId", "")) if output else ""
        return cls(fields, Path(name) if name else None)

    @property
    def own_number(self) -> str:
        """Number of this job alone: a request for the last task of an array by its JobId concerns all tasks."""
        array, task = self.fields.get("ArrayJobId", ""), self.fields.get("ArrayTaskId", "")
        return f"{array}_{task}" if array and task.isdigit() else self.fields.get("JobId", "")

    @property
    def state(self) -> str:
        """State of the job; COMPLETING while processes of a run that slurmctld has ended still exist."""
        return self.fields.get("JobState", "")

    @property
    def is_live(self) -> bool:
        """Whether the job waits or runs."""
        return (self.state != COMPLETING and fate_of_state(self.state).is_active) or self.is_requeued

    @property
    def is_requeued(self) -> bool:
        """Whether slurmctld has queued the job again."""
        # A completing job does not show its next state, but only a queued job has no end, or an end in the future if
        # the scheduler has planned its next start (seen with Slurm 22.05).
        completing = self.state == COMPLETING
        return self._ends_later if completing else fate_of_state(self.state) is Fate.PENDING

    @property
    def _ends_later(self) -> bool:
        """Whether the end of the job is unknown or planned; False for a job that was just ended."""
        try:
            end = datetime.fromisoformat(self.fields.get("EndTime", ""))
        except ValueError:
            return True
        # Slurm prints local time without a zone.
        return end > datetime.now() + timedelta(seconds=MAX_CLOCK_SKEW_S)

    @property
    def is_preempted(self) -> bool:
        """Whether the job has been selected for preemption since its start."""
        return self.fields.get("PreemptTime", "None") != "None"

    @property
    def end(self) -> str:
        """State in which the current run ends or has ended, or the last run of a queued job; empty if it runs or if that is unknown."""
        if self.is_requeued:
            return "REQUEUED"
        if self.state == COMPLETING:
            return COMPLETING_REASONS.get(
                self.fields.get("Reason", ""), PREEMPTED if self.is_preempted else ""
            )
        return "" if self.is_live else self.state


def slurm_exit_reason(job_id: str) -> ExitReason:
    """Return why the last run of the job that has ended did so; `killed` if its state does not tell it."""
    end = last_end(job_id)
    if not end and (record := SlurmRecord.query(job_id)):
        # Slurm queues a job again after a preemption or a node failure, or because a user requests it.
        end = record.end or ("REQUEUED" if record.fields.get("Restarts", "0") != "0" else "")
    return reason_of_state(end) or "killed"


def slurm_stop_decision(job_id: str) -> StopDecision:
    """Return why slurmctld stops a job in which a process has received SIGTERM."""
    record = SlurmRecord.query(job_id)
    if record is None:
        return UNKNOWN_DECISION
    end = record.end
    if not end and record.is_live:
        # Without preemption, `scancel --signal=TERM` has sent the signal.
        return StopDecision("preempted", True) if record.is_preempted else StopDecision("canceled")
    if end == PREEMPTED:
        # A job that is preempted for good and a job that is canceled in its grace time differ only in the accounting.
        return StopDecision("canceled" if reason_of_state(last_end(job_id)) == "canceled" else "preempted")
    reason = reason_of_state(end) or ("killed" if end else "canceled")
    # The ranks that are left have saved, and the next job continues: no failure of the training.
    return StopDecision("preempted" if reason == "node failure" else reason)


def last_end(job_id: str) -> str:
    """Return the state in which the last run that has ended did so, or an empty string if it is unknown."""
    # -D also lists the runs before a requeue, oldest first; -X leaves out the steps of the job.
    states = [row["State"] for row in accounting_rows(job_id, ("JobID", "JobIDRaw", "State"), "-D", "-X")]
    ends = [state for state in states if reason_of_state(state) or not fate_of_state(state).is_active]
    return ends[-1] if ends else ""


def accounting_rows(job_id: str, fields: Sequence[str], *options: str) -> list[dict[str, str]]:
    """Return the rows of a job and its steps (7, 7.batch, 7.0), by field.

    sacct lists all tasks of an array if asked for the number of its last task, which is the number of the array.
    """
    lines = query_scheduler(
        "sacct", "-n", "-P", f"--jobs={job_id}", *options, "-o", ",".join(fields)
    ).splitlines()
    rows = [
        dict(zip(fields, line.split("|"), strict=True))
        for line in lines
        if line.count("|") == len(fields) - 1
    ]
    return [row for row in rows if job_id in {row[name].partition(".")[0] for name in ("JobID", "JobIDRaw")}]
