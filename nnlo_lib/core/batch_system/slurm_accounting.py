"""Ends of a job's runs in Slurm's accounting, which some sites do not have."""

import re
from collections.abc import Sequence

from nnlo_lib.core.batch_system.scheduler_query import query_scheduler
from nnlo_lib.core.batch_system.slurm_record import LIVE_STATES

SACCT = ("sacct", "-n", "-P")
KILLED_EXIT_CODE = re.compile(r":9$")  # status:signal
MEMORY_FIELDS = ("JobID", "JobIDRaw", "State", "ExitCode", "DerivedExitCode", "ReqMem", "MaxRSS", "NNodes")
# A task is killed at its next sample above the limit, which the accounting may not have.
FULL_MEMORY_SHARE = 0.95
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def last_end(job_id: str) -> str:
    """Return the state in which the last run that has ended did so, or an empty string if it is unknown."""
    # -D also lists the runs before a requeue, oldest first; -X leaves out the steps of the job.
    states = [row["State"] for row in _rows(job_id, ("JobID", "JobIDRaw", "State"), "-D", "-X")]
    # Slurm appends the user to a state, `CANCELLED by 1000`.
    ends = [word for state in states for word in state.split()[:1] if word not in LIVE_STATES]
    return ends[-1] if ends else ""


def was_killed_for_memory(job_id: str) -> bool:
    """Return True if the last run was killed with SIGKILL, and a process used as much memory as was requested."""
    rows = _rows(job_id, MEMORY_FIELDS)
    if any(row["State"].startswith("OUT_OF_MEMORY") for row in rows):  # also of a step
        return True
    codes = [code for row in rows for code in (row.get("ExitCode", ""), row.get("DerivedExitCode", ""))]
    requested = max((_requested_per_node(row) for row in rows), default=0.0)
    used = max((_parse_bytes(row.get("MaxRSS", "")) for row in rows), default=0.0)
    killed = any(KILLED_EXIT_CODE.search(code) for code in codes)
    return killed and requested > 0 and used >= FULL_MEMORY_SHARE * requested


def _rows(job_id: str, fields: Sequence[str], *options: str) -> list[dict[str, str]]:
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


def _requested_per_node(row: dict[str, str]) -> float:
    text, nodes = row.get("ReqMem", ""), row.get("NNodes", "")
    # Slurm before 21.08 appends `n`: memory per node. Later versions print the memory of all nodes.
    of_all = not text.endswith("n") and nodes.isdigit()
    return _parse_bytes(text.removesuffix("n")) / (int(nodes) if of_all else 1)


def _parse_bytes(text: str) -> float:
    found = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    return float(found[1]) * UNITS[found[2]] if found else 0.0
