"""A stopped job asks the scheduler why, and is requeued, ended or canceled; what an attempt does after earlier attempts."""

import os
import signal
from types import SimpleNamespace

import pytest

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.scheduler_query import StopDecision
from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch import stop_request
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.launch.stop_request import SignalRecorder, judge_stop, parse_preemption_policy, requeue_job
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.attempts import Attempt, append_attempt, read_attempts
from nnlo_lib.state.lease import LeaseOwner
from nnlo_lib.train.task import Task

JOB = BatchJob("slurm", "7")
FOREVER_S = 1e4  # longer than a test may take


@pytest.fixture
def decide(monkeypatch):
    """Return a function that sets the scheduler's decision; without a decision, no query is expected."""

    def unexpected(job):
        raise AssertionError("the scheduler must not be queried")

    monkeypatch.setattr(BatchJob, "stop_decision", unexpected)
    monkeypatch.setattr(stop_request, "is_job_out_of_memory", lambda job, reason: False)
    return lambda *decision: monkeypatch.setattr(
        BatchJob, "stop_decision", lambda job: StopDecision(*decision)
    )


def stopped(signal_name="SIGTERM", reason="preempted"):
    return AttemptOutcome(reason, "stopped and saved", signal_name)


@pytest.mark.parametrize(
    ("decision", "reason", "may_requeue", "status"),
    [
        (("preempted", True), "preempted", True, 75),
        (("preempted",), "preempted", False, 75),
        (("canceled",), "canceled", False, 1),
        (("time limit",), "time limit", False, 75),
        (("killed",), "killed", False, 1),
        (("out of memory",), "out of memory", False, 1),
    ],
)
def test_what_a_stopped_job_may_do(decide, decision, reason, may_requeue, status):
    decide(*decision)
    judged = judge_stop(stopped(), JOB, is_automatic=True)
    assert (judged.reason, judged.may_requeue, judged.exit_status) == (reason, may_requeue, status)
    assert ("job 7 was canceled" in judged.error) == (reason == "canceled")
    assert ("its batch script ended" in judged.error) == (reason == "killed")


def test_slurm_cancels_a_job_for_its_memory(decide, monkeypatch):
    decide("canceled")
    monkeypatch.setattr(stop_request, "is_job_out_of_memory", lambda job, reason: True)
    judged = judge_stop(stopped(), JOB, is_automatic=True)
    assert (judged.reason, judged.error) == ("out of memory", "job 7 exceeded its memory")


def test_a_user_who_stops_a_command_may_repeat_it(decide):
    decide("canceled")
    judged = judge_stop(stopped("SIGINT"), JOB, is_automatic=False)
    assert (judged.reason, judged.may_requeue, judged.exit_status) == ("preempted", False, 75)


@pytest.mark.parametrize(
    "outcome", [stopped("", "time limit"), stopped("SIGUSR1", "time limit"), stopped("SIGUSR1")]
)
def test_near_the_time_limit_a_job_may_always_be_requeued(decide, outcome):
    judged = judge_stop(outcome, JOB, is_automatic=True)
    assert (judged.reason, judged.may_requeue) == (outcome.reason, True)


@pytest.mark.parametrize(("outcome", "job"), [(stopped(), None), (AttemptOutcome("code error"), JOB)])
def test_the_scheduler_is_queried_only_for_a_stopped_job(decide, outcome, job):
    assert judge_stop(outcome, job, is_automatic=True) == outcome


@pytest.fixture
def signals():
    """Return a recorder of signals; the handlers of pytest are restored."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG)
    before = {number: signal.getsignal(number) for number in numbers}
    yield SignalRecorder()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_requeued_job_ends_as_soon_as_the_scheduler_signals_it(signals, monkeypatch):
    os.kill(os.getpid(), signal.SIGTERM)  # of the preemption

    def accepted(job):
        os.kill(os.getpid(), signal.SIGTERM)
        return ""

    monkeypatch.setattr(BatchJob, "requeue", accepted)
    requeue_job(JOB, signals, timeout=FOREVER_S)


def test_a_refused_requeue_is_logged_and_does_not_wait(signals, capsys, monkeypatch):
    refusal = "Requested operation is presently disabled"
    monkeypatch.setattr(BatchJob, "requeue", lambda job: refusal)
    requeue_job(JOB, signals, timeout=FOREVER_S)
    assert f"job 7 could not be requeued ({refusal})" in capsys.readouterr().err


def test_a_scheduler_that_sends_no_signal_does_not_hold_the_job(signals, monkeypatch):
    monkeypatch.setattr(BatchJob, "requeue", lambda job: "")
    requeue_job(JOB, signals, timeout=0.2)


def test_the_policy_of_an_older_profile():
    assert [parse_preemption_policy(text) for text in ("wait", "requeue", "exit", "x")] == [
        "requeue", "requeue", "exit", "x",
    ]  # fmt: skip


FAR = SimpleNamespace(is_near=False, seconds_left=float("inf"))


def task_in(folder):
    task = Task("t", "t", Run(), 0, None, 1, folder / "manifest.json", folder)
    task.state.mkdir()
    return task


def attempt_after(folder, reason, monkeypatch, number=2, job="8"):
    """Make an attempt after one that ended for a reason in job 7; return the outcome, `finished` if it was made."""
    monkeypatch.setattr(BatchJob, "exit_reason", lambda job: "killed")
    monkeypatch.setattr(Task, "input_checksums", {})
    task, times = task_in(folder), ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:09+00:00")
    append_attempt(task.state, Attempt(1, *times, 9.0, "n1", "7", reason, "the cause", 0, 5, 5, 1))
    context = JobContext(BatchJob("slurm", job) if job else None, FAR, SimpleNamespace(first=""))
    options = LaunchOptions(attempt_number=number)
    return run_attempt(task, options, context, lambda *_: AttemptOutcome("finished"))


@pytest.mark.parametrize("job", ["8", None])
def test_a_canceled_job_is_not_tried_again(tmp_path, monkeypatch, job):
    outcome = attempt_after(tmp_path, "canceled", monkeypatch, job=job)
    assert (outcome.reason, outcome.exit_status) == ("canceled", 1)
    assert outcome.error == "job 7 was canceled; run the same command again to resume"
    assert [each.reason for each in read_attempts(tmp_path / "state")] == ["canceled"]


@pytest.mark.parametrize(
    ("reason", "status"), [("bad input", 2), ("user code", 2), ("diverged", 2), ("code error", 1)]
)
def test_a_permanent_error_is_not_tried_again(tmp_path, monkeypatch, reason, status):
    outcome = attempt_after(tmp_path, reason, monkeypatch)
    assert (outcome.reason, outcome.exit_status) == (reason, status)
    assert "not retried" in outcome.error
    assert "the cause" in outcome.error
    assert [each.reason for each in read_attempts(tmp_path / "state")] == [reason]


@pytest.mark.parametrize("reason", ["canceled", "bad input"])
@pytest.mark.parametrize(("number", "job"), [(1, "8"), (None, "8")], ids=["same command", "nnlo run"])
def test_a_user_tries_again_what_no_job_tries_again(tmp_path, monkeypatch, number, job, reason):
    assert attempt_after(tmp_path, reason, monkeypatch, number, job).reason == "finished"


def test_scontrol_requeue_resumes_a_canceled_job(tmp_path, monkeypatch):
    assert attempt_after(tmp_path, "canceled", monkeypatch, 2, "7").reason == "finished"


def test_the_reason_of_a_stop_is_recorded(tmp_path, monkeypatch, decide):
    decide("canceled")
    monkeypatch.setattr(Task, "input_checksums", {})
    context = JobContext(JOB, FAR, SimpleNamespace(first="SIGTERM"))
    outcome = run_attempt(task_in(tmp_path), LaunchOptions(attempt_number=1), context, lambda *_: stopped())
    assert outcome.exit_status == 1
    (attempt,) = read_attempts(tmp_path / "state")
    assert (attempt.reason, attempt.job) == ("canceled", "7")
    assert attempt.error == "job 7 was canceled; run the same command again to resume"


class Heart:
    """Time limit that is near at the second check; each check renews the lease of the other launcher."""

    def __init__(self, lease):
        self._lease, self._looks = lease, 0

    @property
    def is_near(self):
        self._looks += 1
        os.utime(self._lease, (self._looks, self._looks))
        return self._looks > 1


def attempt_beside_another(folder, **options):
    """Make an attempt while the lease of the folder belongs to this live process."""
    task = task_in(folder)
    LeaseOwner.for_this_process().write(task.state / "lease.json")
    context = JobContext(None, Heart(task.state / "lease.json"), SimpleNamespace(first=None))
    return run_attempt(task, LaunchOptions(**options), context)


def test_an_attempt_of_snakemake_waits_for_the_lease_also_without_a_scheduler(tmp_path):
    assert attempt_beside_another(tmp_path, attempt_number=1).reason == "preempted"


def test_a_command_of_a_user_does_not_wait_for_the_lease(tmp_path):
    with pytest.raises(UserError, match="is being written by process"):
        attempt_beside_another(tmp_path)
