"""The record of a job in the memory of slurmctld, which exists without accounting.

slurmctld removes the record MinJobAge seconds after the end of the job (300 s by default).
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from nnlo_lib.batch.job_states import Fate, fate_of_state
from nnlo_lib.core.batch_system.scheduler_query import query_scheduler

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
        return cls(fields, Path(output[1].strip()) if output else None)

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
        return (self.state != "COMPLETING" and fate_of_state(self.state).is_active) or self.is_requeued

    @property
    def is_requeued(self) -> bool:
        """Whether slurmctld has queued the job again."""
        # A completing job does not show its next state, but only a queued job has no end, or an end in the future if
        # the scheduler has planned its next start (seen with Slurm 22.05).
        completing = self.state == "COMPLETING"
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
    def has_run_before(self) -> bool:
        """Whether the job has been queued again at least once."""
        return self.fields.get("Restarts", "0") != "0"

    @property
    def is_preempted(self) -> bool:
        """Whether the job has been selected for preemption since its start."""
        return self.fields.get("PreemptTime", "None") != "None"
