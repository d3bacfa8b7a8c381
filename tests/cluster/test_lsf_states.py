"""Every state of an LSF job and every termination reason, with a table written from IBM's manual of LSF 10.1."""

import pytest

from nnlo_lib.cluster.fate import Fate
from nnlo_lib.cluster.lsf.lsf_states import lsf_report

# bjobs(1), JOB STATUS
STATES = {
    "PEND": "pending", "PSUSP": "pending", "PROV": "pending", "WAIT": "pending",
    "RUN": "running", "SSUSP": "running", "USUSP": "running", "UNKWN": "running", "ZOMBI": "running",
    "DONE": "done", "POST_DONE": "done", "POST_ERR": "done",
    "EXIT": "failed",
}  # fmt: skip
# "Termination reasons displayed by bacct, bhist, and bjobs"
REASONS = {
    "TERM_ADMIN": "canceled",
    "TERM_BUCKET_KILL": "canceled",
    "TERM_CHKPNT": "interrupted",
    "TERM_CPULIMIT": "failed",
    "TERM_CSM_ALLOC": "interrupted",
    "TERM_CWD_NOTEXIST": "failed",
    "TERM_DATA": "failed",
    "TERM_DEADLINE": "failed",
    "TERM_EXTERNAL_SIGNAL": "failed",
    "TERM_FORCE_ADMIN": "canceled",
    "TERM_FORCE_OWNER": "canceled",
    "TERM_KUBE": "interrupted",
    "TERM_LOAD": "interrupted",
    "TERM_MC_RECALL": "interrupted",
    "TERM_MEMLIMIT": "failed",
    "TERM_ORPHAN_SYSTEM": "failed",
    "TERM_OTHER": "interrupted",
    "TERM_OWNER": "canceled",
    "TERM_PREEMPT": "interrupted",
    "TERM_PROCESSLIMIT": "failed",
    "TERM_REMOVE_HUNG_JOB": "interrupted",
    "TERM_REQUEUE_ADMIN": "interrupted",
    "TERM_REQUEUE_OWNER": "interrupted",
    "TERM_RMS": "interrupted",
    "TERM_RUNLIMIT": "failed",
    "TERM_SLURM": "interrupted",
    "TERM_SWAP": "failed",
    "TERM_THREADLIMIT": "failed",
    "TERM_UNKNOWN": "failed",
    "TERM_WINDOW": "interrupted",
    "TERM_ZOMBIE": "interrupted",
}


@pytest.mark.parametrize(("state", "fate"), STATES.items())
def test_states(state: str, fate: str) -> None:
    assert lsf_report(state).fate is Fate(fate)


@pytest.mark.parametrize(("reason", "fate"), REASONS.items())
def test_termination_reasons(reason: str, fate: str) -> None:
    assert lsf_report("EXIT", f"{reason}: job killed").fate is Fate(fate)
    assert lsf_report("DONE", f"{reason}: job killed").fate is Fate.DONE


def test_a_state_of_a_newer_lsf_is_no_end() -> None:
    assert lsf_report("RESTING").fate is Fate.RUNNING


@pytest.mark.parametrize(
    ("reason", "state"),
    [("TERM_PREEMPT: ...", "PREEMPTED"), ("TERM_OWNER: ...", "EXIT (TERM_OWNER)"), ("", "EXIT")],
)
def test_the_state_is_in_the_words_of_lsf(reason: str, state: str) -> None:
    assert lsf_report("EXIT", reason).state == state


def test_only_pending_jobs_have_a_pending_reason() -> None:
    assert lsf_report("PSUSP", "", "The job was suspended by the user while pending").reason
    assert not lsf_report("RUN", "", "stale").reason
