"""A stopped job asks the scheduler why, and is requeued, ended or canceled; what an attempt does after earlier attempts."""

import os
import signal
from types import SimpleNamespace

import pytest

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.scheduler_query import StopDecision
from nnlo_lib.commands.task import preemption_policy
from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch import stop_request
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.launch.stop_request import SignalRecorder, judge_stop, requeue_job
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.attempts import Attempt, append_attempt, read_attempts
from nnlo_lib.state.lease import LeaseOwner
from nnlo_lib.train.task import Task

JOB = BatchJob("slurm", "7")
FOREVER_S = 1e4  # longer than a test may take
FAR = SimpleNamespace(is_near=False, seconds_left=float("inf"))
FINISHED = AttemptOutcome("finished")


@pytest.fixture
def decide(monkeypatch):
    """Return a function that sets the scheduler's decision; without a decision, no query is expected."""
    monkeypatch.setattr(BatchJob, "stop_decision", lambda _: pytest.fail("the scheduler must not be queried"))
    monkeypatch.setattr(stop_request, "is_job_out_of_memory", lambda job, reason: False)
    return lambda *decision: monkeypatch.setattr(
        BatchJob, "stop_decision", lambda job: StopDecision(*decision)
    )


def stopped(signal_name="SIGTERM", reason="preempted"):
    return AttemptOutcome(reason, "stopped and saved", signal_name)


@pytest.mark.parametrize(
    ("decision", "may_requeue", "status", "said"),
    [
        (("preempted", True), True, 75, "stopped and saved"),
        (("preempted",), False, 75, "stopped and saved"),
        (("canceled",), False, 1, "job 7 was canceled"),
        (("time limit",), False, 75, "stopped and saved"),
        (("killed",), False, 1, "its batch script ended"),
        (("out of memory",), False, 1, "job 7 exceeded its memory"),
    ],
)
def test_what_a_stopped_job_may_do(decide, decision, may_requeue, status, said):
    decide(*decision)
    judged = judge_stop(stopped(), JOB, is_automatic=True)
    assert (judged.reason, judged.may_requeue, judged.exit_status) == (decision[0], may_requeue, status)
    assert said in judged.error


def test_slurm_cancels_a_job_for_its_memory(decide, monkeypatch):
    decide("canceled")
    monkeypatch.setattr(stop_request, "is_job_out_of_memory", lambda job, reason: True)
    assert judge_stop(stopped(), JOB, is_automatic=True).reason == "out of memory"


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
    recorder = SignalRecorder()
    yield recorder
    recorder.restore()


def test_a_requeued_job_ends_as_soon_as_the_scheduler_signals_it(signals, monkeypatch):
    os.kill(os.getpid(), signal.SIGTERM)  # of the preemption
    # The answer is an empty string.
    monkeypatch.setattr(BatchJob, "requeue", lambda job: os.kill(os.getpid(), signal.SIGTERM) or "")
    requeue_job(JOB, signals, timeout=FOREVER_S)


@pytest.mark.parametrize(
    ("answer", "timeout", "said"),
    [("disabled", FOREVER_S, "could not be requeued (disabled)"), ("", 0.2, "queued again")],
    ids=["refused", "no signal"],
)
def test_a_job_without_a_signal_is_not_held(signals, capsys, monkeypatch, answer, timeout, said):
    monkeypatch.setattr(BatchJob, "requeue", lambda job: answer)
    requeue_job(JOB, signals, timeout)
    assert said in capsys.readouterr().err


def test_the_policy_of_an_older_profile():
    assert [preemption_policy(text) for text in ("wait", "requeue", "x")] == ["requeue", "requeue", "x"]


def task_in(folder):
    task = Task("t", "t", Run(), 0, None, 1, folder / "manifest.json", folder)
    task.state.mkdir()
    return task


@pytest.fixture
def attempt_after(tmp_path, monkeypatch):
    """Return a function that makes an attempt after one that ended in job 7; `finished`: it was made."""

    def attempt(reason, number=2, job="8"):
        task, times = task_in(tmp_path), ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:09+00:00")
        append_attempt(task.state, Attempt(1, *times, 9.0, "n1", "7", reason, "the cause", 0, 5, 5, 1))
        context = JobContext(BatchJob.from_id("slurm", job), FAR, SimpleNamespace(first=""))
        outcome = run_attempt(task, LaunchOptions(attempt_number=number), context, lambda *_: FINISHED)
        return outcome, [each.reason for each in read_attempts(task.state)]

    monkeypatch.setattr(BatchJob, "exit_reason", lambda job: "killed")
    monkeypatch.setattr(Task, "input_checksums", {})
    return attempt


@pytest.mark.parametrize(
    ("reason", "job", "status", "said"),
    [
        ("canceled", "8", 1, "job 7 was canceled; run the same command again to resume"),
        ("canceled", None, 1, "job 7 was canceled; run the same command again to resume"),
        ("bad input", "8", 2, "not retried, because it would fail like attempt 1 (bad input): the cause"),
        ("user code", "8", 2, "not retried, because it would fail like attempt 1 (user code): the cause"),
        ("diverged", "8", 2, "not retried, because it would fail like attempt 1 (diverged): the cause"),
        ("code error", "8", 1, "not retried, because it would fail like attempt 1 (code error): the cause"),
    ],
)
def test_what_cannot_succeed_is_not_tried_again(attempt_after, reason, job, status, said):
    outcome, recorded = attempt_after(reason, job=job)
    assert (outcome.reason, outcome.exit_status, outcome.error) == (reason, status, said)
    assert recorded == [reason]


@pytest.mark.parametrize("reason", ["canceled", "bad input"])
@pytest.mark.parametrize("number", [1, None], ids=["same command", "nnlo run"])
def test_a_user_tries_again_what_no_job_tries_again(attempt_after, number, reason):
    assert attempt_after(reason, number)[0].reason == "finished"


def test_scontrol_requeue_resumes_a_canceled_job(attempt_after):
    assert attempt_after("canceled", job="7")[0].reason == "finished"


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
