"""State and end of LSF jobs."""

import re

from nnlo_lib.batch.job_states import reason_of_state
from nnlo_lib.core.batch_system.scheduler_query import query_scheduler
from nnlo_lib.core.exit_reason import ExitReason


def lsf_exit_reason(job_id: str) -> ExitReason:
    """Return why the job ended; `killed` if that is unknown."""
    text = query_scheduler("bjobs", "-a", "-noheader", "-o", "exit_reason", job_id)
    return reason_of_state(text) or "killed"


def lsf_minutes_left(job_id: str) -> float | None:
    """Return the minutes that the job may still run, or None if LSF does not report them."""
    # LSF prints hours:minutes and a letter.
    found = re.match(r"(\d+):(\d+)", query_scheduler("bjobs", "-noheader", "-o", "time_left", job_id))
    return int(found[1]) * 60.0 + int(found[2]) if found else None
