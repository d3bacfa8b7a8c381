"""Ends of a job's runs in Slurm's accounting, which some sites do not have."""

from collections.abc import Sequence

from nnlo_lib.batch.job_states import fate_of_state, reason_of_state
from nnlo_lib.core.batch_system.scheduler_query import query_scheduler

SACCT = ("sacct", "-n", "-P")


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
    lines = query_scheduler(*SACCT, f"--jobs={job_id}", *options, "-o", ",".join(fields)).splitlines()
    rows = [
        dict(zip(fields, line.split("|"), strict=True))
        for line in lines
        if line.count("|") == len(fields) - 1
    ]
    return [row for row in rows if job_id in {row[name].partition(".")[0] for name in ("JobID", "JobIDRaw")}]
