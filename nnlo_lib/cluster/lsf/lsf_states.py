"""The states of an LSF job and the reasons of its end, and which fate each is."""

import re

from nnlo_lib.cluster.fate import PREEMPTED, Fate, JobReport

# bjobs(1), JOB STATUS, of LSF 10.1; `bjobs -N` shows the last two.
FATE_OF_LSF_STATE: dict[str, Fate] = {
    "PEND": Fate.PENDING,
    "PSUSP": Fate.PENDING,  # bstop of a pending job, brequeue -H
    "PROV": Fate.PENDING,  # a host of the job is switched on
    "WAIT": Fate.PENDING,  # member of a chunk job
    "RUN": Fate.RUNNING,
    "SSUSP": Fate.RUNNING,
    "USUSP": Fate.RUNNING,  # bstop of a running job; bresume continues it
    # LSF has lost the host. The job may still run there, and is queued again (-r) or ends as soon as LSF knows.
    "UNKWN": Fate.RUNNING,
    "RUNKWN": Fate.RUNNING,
    "ZOMBI": Fate.RUNNING,
    "DONE": Fate.DONE,
    "EXIT": Fate.FAILED,
    # After the end of a job with status 0.
    "POST_DONE": Fate.DONE,
    "POST_ERR": Fate.DONE,
}
# Termination reasons of bjobs, bhist and bacct in LSF 10.1; all others are failures of the job, for example TERM_RUNLIMIT.
PREEMPTING_REASONS = (
    "TERM_PREEMPT",
    "TERM_WINDOW",
    "TERM_LOAD",
    "TERM_OTHER",
    "TERM_REQUEUE_OWNER",
    "TERM_REQUEUE_ADMIN",
    "TERM_CHKPNT",
    "TERM_MC_RECALL",
)
LOSING_REASONS = (
    "TERM_ZOMBIE",
    "TERM_REMOVE_HUNG_JOB",
    "TERM_RMS",
    "TERM_SLURM",
    "TERM_CSM_ALLOC",
    "TERM_KUBE",
)
CANCELING_REASONS = (
    "TERM_OWNER",
    "TERM_FORCE_OWNER",
    "TERM_ADMIN",
    "TERM_FORCE_ADMIN",
    "TERM_BUCKET_KILL",
)


def lsf_report(state: str, exit_reason: str = "", pending_reason: str = "") -> JobReport:
    """Return the report of a job; an unknown state, for example of a newer LSF, counts as running.

    Args:
        state: state in the words of bjobs.
        exit_reason: text with the termination reason, if any.
        pending_reason: why the job is pending.
    """
    fate = FATE_OF_LSF_STATE.get(state, Fate.RUNNING)
    if fate is Fate.FAILED:
        return _report_of_end(state, exit_reason)
    return JobReport(fate, state, pending_reason if fate is Fate.PENDING else "")


def _report_of_end(state: str, exit_reason: str) -> JobReport:
    found = re.search(r"TERM_[A-Z_]*[A-Z]", exit_reason)
    term = found[0] if found else ""
    if term in PREEMPTING_REASONS:
        return JobReport(Fate.INTERRUPTED, PREEMPTED)
    named = f"{state} ({term})" if term else state
    if term in LOSING_REASONS:
        return JobReport(Fate.INTERRUPTED, named)
    return JobReport(Fate.CANCELED if term in CANCELING_REASONS else Fate.FAILED, named)
