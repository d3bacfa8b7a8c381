"""What slurmctld and the accounting say about one job, and why Slurm ended or stops it; each may be missing.

slurmctld removes its record MinJobAge seconds after the end of the job (300 s by default).
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from nnlo_lib.batch.job_states import (
    COMPLETING,
    COMPLETING_REASONS,
    PREEMPTED,
    Fate,
    JobReport,
    fate_of_state,
    parse_minutes,
    reason_of_state,
)
from nnlo_lib.batch.scheduler_query import UNKNOWN_DECISION, StopDecision, query_scheduler

MAX_CLOCK_SKEW_S = 20  # between the hosts; the shortest time limit of Slurm is 60 s


def slurm_record(job_id: str) -> JobReport | None:
    """Return the job as `scontrol show job` prints it, or None if slurmctld does not respond or has removed it."""
    # A job array has a line for each task, also if the number is the one of its last task.
    lines = query_scheduler("scontrol", "--oneliner", "show", "job", job_id).splitlines()
    found = [line for line in lines if "JobState=" in line]
    return _parse(max(found, key=lambda line: line.startswith(f"JobId={job_id} "))) if found else None


def _parse(line: str) -> JobReport:
    fields: dict[str, str] = {}  # without values that contain spaces
    for name, value in re.findall(r"(?:^|\s)(\w+)=(\S*)", line):
        fields.setdefault(name, value)  # a comment of the user may repeat a name
    given = fields.get
    state, number = given("JobState", ""), given("JobId", "")
    fate, is_preempted = fate_of_state(state), given("PreemptTime", "None") != "None"
    # Processes of a run that slurmctld has ended still exist while the job is COMPLETING. Such a job does not show its next state,
    # but only a queued job has no end, or an end in the future if the scheduler has planned its next start (seen with Slurm 22.05).
    if fate is Fate.PENDING or (state == COMPLETING and _is_later(given("EndTime", ""))):
        end = "REQUEUED"
    elif state == COMPLETING:
        end = COMPLETING_REASONS.get(given("Reason", ""), PREEMPTED if is_preempted else "")
    else:
        end = "" if fate.is_active else state
    limit, used = parse_minutes(given("TimeLimit", "")), parse_minutes(given("RunTime", ""))
    array, task = given("ArrayJobId", ""), given("ArrayTaskId", "")
    output = re.search(r" StdOut=(.+?)(?: \w+=|$)", line)
    return JobReport(
        fate,
        state,
        given("Reason", ""),
        # Slurm lets jobs of some sites run over their limit, for how long it does not say (OverTimeLimit).
        minutes_left=limit - used if limit is not None and used is not None and used <= limit else None,
        end=end,
        is_preempted=is_preempted,
        restarts=int(given("Restarts", "0")),
        # The name may be a pattern, in which `%j` stands for the number.
        output=Path(output[1].strip().replace("%j", number)) if output else None,
        own_number=f"{array}_{task}" if array and task.isdigit() else number,
    )


def _is_later(text: str) -> bool:
    """Return True if the end of a job is unknown or planned; False for a job that was just ended."""
    try:
        # Slurm prints local time without a zone.
        return datetime.fromisoformat(text) > datetime.now() + timedelta(seconds=MAX_CLOCK_SKEW_S)
    except ValueError:
        return True


def slurm_stop_decision(job_id: str) -> StopDecision:
    """Return why slurmctld stops a job in which a process has received SIGTERM."""
    record = slurm_record(job_id)
    if record is None:
        return UNKNOWN_DECISION
    if not record.end and record.state != COMPLETING:
        # Without preemption, `scancel --signal=TERM` has sent the signal.
        return StopDecision("preempted", True) if record.is_preempted else StopDecision("canceled")
    if record.end == PREEMPTED:
        # A job that is preempted for good and a job that is canceled in its grace time differ only in the accounting.
        return StopDecision("canceled" if reason_of_state(last_end(job_id)) == "canceled" else "preempted")
    reason = reason_of_state(record.end) or ("killed" if record.end else "canceled")
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
    text = query_scheduler("sacct", "-n", "-P", f"--jobs={job_id}", *options, "-o", ",".join(fields))
    values = [line.split("|") for line in text.splitlines() if line.count("|") == len(fields) - 1]
    rows = [dict(zip(fields, each, strict=True)) for each in values]
    return [row for row in rows if job_id in {row[name].partition(".")[0] for name in ("JobID", "JobIDRaw")}]
