"""The table of endings: how Slurm ends a run, what the launcher records, and what follows, on a scripted Slurm in virtual time.

States and reasons are those of scontrol(1), squeue(1) (JOB STATE CODES) and job_reason_codes of Slurm's manual, and what Slurm 22.05 showed of a job
of two nodes at each event. docs/reference/exit_statuses.md has the table for users.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedJob, ScriptedSlurm

from nnlo_lib.batch import BatchJob, scheduler_query
from nnlo_lib.launch.stop_request import judge_stop
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.attempts import Attempt, append_attempt, read_attempts

LIMIT_S = 8000
STATE = Path("a/state")


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    state: str  # state in which slurmctld ends the run; `REQUEUED` if a user queues it again
    reason: str  # reason while the job is COMPLETING
    may_requeue: bool  # `Requeue` of the job
    grace: float  # grace time of a preemption in seconds
    recorded: str  # reason of the attempt
    # `same job` continues under its number; `again`: submitted again; `try`: the same, counted; `never`
    follows: str


NO, YES = False, True
TABLE = [
    Row("PREEMPTED", "None", YES, 0, "preempted", "same job"),
    Row("PREEMPTED", "None", NO, 0, "preempted", "again"),
    Row("PREEMPTED", "None", YES, 60, "preempted", "same job"),  # it requeues itself
    Row("PREEMPTED", "None", NO, 60, "preempted", "again"),  # Slurm refuses that
    Row("NODE_FAIL", "NodeDown", YES, 0, "preempted", "same job"),
    Row("NODE_FAIL", "NodeDown", NO, 0, "preempted", "again"),
    Row("NODE_FAIL", "PartitionDown", NO, 0, "preempted", "again"),
    Row("NODE_FAIL", "SystemFailure", NO, 0, "preempted", "again"),
    Row("BOOT_FAIL", "NodeDown", NO, 0, "preempted", "again"),
    Row("REQUEUED", "None", YES, 0, "preempted", "same job"),
    Row("TIMEOUT", "TimeLimit", YES, 0, "time limit", "again"),
    Row("TIMEOUT", "TimeLimit", NO, 0, "time limit", "again"),
    Row("DEADLINE", "DeadLine", YES, 0, "time limit", "again"),
    Row("OUT_OF_MEMORY", "OutOfMemory", YES, 0, "out of memory", "try"),
    Row("FAILED", "NonZeroExitCode", YES, 0, "killed", "try"),
    Row("FAILED", "RaisedSignal", NO, 0, "killed", "try"),
    Row("FAILED", "JobLaunchFailure", NO, 0, "killed", "try"),
    Row("CANCELLED by 1000", "None", YES, 0, "canceled", "never"),
    Row("CANCELLED by 1000", "None", NO, 0, "canceled", "never"),
    Row("CANCELLED by 1000", "None", YES, 60, "preempted", "never"),  # after the job has requeued itself
]  # fmt: skip


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def stop_training(job: ScriptedJob) -> None:
    """Do what a launcher does after SIGTERM: ask Slurm why, record the attempt, and requeue the job if that may be."""
    batch_job = BatchJob("slurm", job.number)
    outcome = judge_stop(AttemptOutcome("preempted", "saved", "SIGTERM"), batch_job, is_automatic=True)
    STATE.mkdir(parents=True, exist_ok=True)
    append_attempt(
        STATE, Attempt(1, "", "", 1.0, "n1", job.number, outcome.reason, outcome.error, 0, 5, 5, 2)
    )
    if outcome.may_requeue:
        batch_job.requeue()


def play(slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch) -> tuple[ScriptedTask, ScriptedExecutor]:
    """Train a task on a Slurm whose first stopped job records its attempt."""
    slurm.launcher = stop_training
    monkeypatch.setattr(scheduler_query, "run_command", lambda *command, **_: slurm.run(*command))
    training = ScriptedTask("a", ("a/out",), resources={"on_preemption": "requeue", "tasks": 2, "runtime": 9})
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([training], LIMIT_S)
    return training, executor


@pytest.mark.parametrize("accounting", [True, False], ids=["accounting", "no accounting"])
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_what_is_recorded_and_what_follows(
    row: Row, accounting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = ScriptedSlurm({"a": 300.0}, accounting=accounting, may_requeue=row.may_requeue)
    slurm.at(100, lambda: slurm.stop("1", row.state, row.reason, row.grace))
    training, executor = play(slurm, monkeypatch)
    assert [each.reason for each in read_attempts(STATE)] == [row.recorded], executor.lines
    assert executor.done == ([] if row.follows == "never" else ["a"]), executor.lines
    assert len(slurm.jobs) == (2 if row.follows in ("again", "try") else 1), executor.lines
    assert row.follows == "never" or training.attempt == (2 if row.follows == "try" else 1)


def test_scancel_after_the_grace_time_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is preempted, is not allowed to requeue itself, and is canceled before it has saved."""
    slurm = ScriptedSlurm({"a": 300.0}, may_requeue=False)

    def cancel() -> None:
        slurm.jobs["1"].is_preempted = True
        slurm.stop("1", "CANCELLED by 1000")

    slurm.at(100, cancel)
    _, executor = play(slurm, monkeypatch)
    assert [each.reason for each in read_attempts(STATE)] == ["canceled"]
    assert (executor.done, len(slurm.jobs)) == ([], 1)


@pytest.mark.parametrize("state", ["RUNNING", "SIGNALING"])
def test_scancel_with_a_signal(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scancel --signal=TERM` leaves the job running; newer versions of Slurm show SIGNALING meanwhile."""
    slurm = ScriptedSlurm({"a": 300.0})

    def signal() -> None:
        slurm.jobs["1"].state = state
        slurm._signal(slurm.jobs["1"])
        slurm.stop("1", "FAILED", "NonZeroExitCode") if slurm.jobs["1"].state == state else None

    slurm.at(100, signal)
    _, executor = play(slurm, monkeypatch)
    assert [each.reason for each in read_attempts(STATE)] == ["canceled"]
    assert (executor.done, len(slurm.jobs)) == ([], 1)


def test_a_preempted_job_that_is_being_signaled_requeues_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = ScriptedSlurm({"a": 300.0})

    def signal() -> None:
        slurm.jobs["1"].state = "SIGNALING"
        slurm.stop("1", "PREEMPTED", grace=60)

    slurm.at(100, signal)
    training, executor = play(slurm, monkeypatch)
    assert [each.reason for each in read_attempts(STATE)] == ["preempted"]
    assert (executor.done, len(slurm.jobs), training.attempt) == (["a"], 1, 1)
