"""Every state of Slurm, with and without accounting: what becomes of a job that ends in the state (scripted Slurm)."""

import pytest
from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedSlurm

from nnlo_lib.cluster.fate import Fate
from nnlo_lib.cluster.slurm.slurm_states import FATE_OF_STATE, fate_of_state

# The state codes of squeue(1) and sacct(1). `again`: submitted again without a try; `try`: a try is counted.
ENDS = {
    "PREEMPTED": "again", "NODE_FAIL": "try", "BOOT_FAIL": "try", "LAUNCH_FAILED": "try", "RECONFIG_FAIL": "try",
    "REVOKED": "try", "FAILED": "try", "TIMEOUT": "try", "DEADLINE": "try", "OUT_OF_MEMORY": "try",
    "CANCELLED": "never", "CANCELLED by 1000": "never",
}  # fmt: skip
ACTIVE = [
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "REQUEUED", "REQUEUE_HOLD",
    "REQUEUE_FED", "SPECIAL_EXIT", "SIGNALING", "STAGE_OUT", "RESV_DEL_HOLD", "POWER_UP_NODE", "EXPEDITING", "UPDATE_DB",
]  # fmt: skip
LIMIT = 8000


def test_the_table_has_every_state():
    assert set(FATE_OF_STATE) == {state.split()[0] for state in ENDS} | set(ACTIVE) | {"COMPLETED"}


@pytest.mark.parametrize("state", [*ACTIVE, "A_STATE_OF_A_NEWER_SLURM"])
def test_a_job_that_may_still_run_is_waited_for(state):
    assert fate_of_state(state).is_active


def test_words_after_a_state_do_not_count():
    assert fate_of_state("CANCELLED+") is fate_of_state("CANCELLED by 0") is Fate.CANCELED


@pytest.mark.parametrize("accounting", [True, False])
@pytest.mark.parametrize("min_job_age", [300, 1])
@pytest.mark.parametrize("state", ENDS)
def test_a_job_that_ends_early(state, min_job_age, accounting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 100.0}, accounting=accounting, min_job_age=min_job_age)
    slurm.at(30, lambda: slurm.end("1", state))
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([task := ScriptedTask("a", ("a/out",))], LIMIT)
    is_known = accounting or min_job_age == 300
    expected = ENDS[state] if is_known else "try"  # without a trace, the cause is unknown
    assert executor.done == ([] if expected == "never" else ["a"])
    assert len(slurm.jobs) == (1 if expected == "never" else 2)
    if expected != "never":
        assert task.attempt == (1 if expected == "again" else 2)


@pytest.mark.parametrize("accounting", [True, False])
def test_a_finished_job_that_slurm_forgot_at_once_is_done(accounting, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 100.0}, accounting=accounting, min_job_age=1)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask("a", ("a/out",))], LIMIT)
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)
