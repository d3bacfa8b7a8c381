"""The retry policy: what follows an end, from the recorded attempts and the report of the batch system."""

import pytest

from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.state.attempt_outcome import (
    Action,
    EndReport,
    count_without_record,
    decide,
    memory_for_next_attempt,
)
from nnlo_lib.state.attempts import Attempt, count_out_of_memory

FAILED, LOST = JobReport(Fate.FAILED, "FAILED"), JobReport(Fate.INTERRUPTED, "unknown to the batch system")
PREEMPTED, NODE_FAIL = JobReport(Fate.INTERRUPTED, "PREEMPTED"), JobReport(Fate.INTERRUPTED, "NODE_FAIL")
CANCELED = JobReport(Fate.CANCELED, "CANCELLED by 0")


def attempt(reason="killed", number=1, start=0, reached=10, saved=5):
    """Return the record of an attempt."""
    return Attempt(number, "", "", 1.0, "host", "7", reason, "rank 1 was killed", start, reached, saved, 2)


def after(*reasons, **changes):
    return [attempt(reason, number, **changes) for number, reason in enumerate(reasons, 1)]


@pytest.mark.parametrize(
    ("report", "attempts", "status", "action"),
    [
        (FAILED, after("preempted"), 75, Action.RESUBMIT),
        (FAILED, after("time limit"), 75, Action.RESUBMIT),
        (LOST, after("node failure"), None, Action.RESUBMIT),
        (NODE_FAIL, after("node failure"), None, Action.RESUBMIT),
        (NODE_FAIL, after("node failure", "node failure"), None, Action.GIVE_UP),
        (FAILED, after("killed"), 1, Action.RETRY),
        (FAILED, after("peer lost"), 1, Action.RETRY),
        (FAILED, after("out of memory"), 1, Action.RETRY),
        (FAILED, after("code error"), 1, Action.GIVE_UP),
        (FAILED, after("bad input"), 2, Action.GIVE_UP),
        (FAILED, after("diverged"), 2, Action.GIVE_UP),
        (FAILED, after("killed", "killed"), 1, Action.GIVE_UP),
        (FAILED, after("time limit", "time limit", saved=0), 75, Action.GIVE_UP),
        (FAILED, after("killed", "killed", "finished"), 1, Action.RETRY),  # its evaluation failed
        (FAILED, after("finished"), 2, Action.GIVE_UP),
        (FAILED, after("finished"), 75, Action.RESUBMIT),
        (FAILED, [], 2, Action.GIVE_UP),
        (FAILED, [], 75, Action.RESUBMIT),
        (FAILED, [], 1, Action.RETRY),
        (LOST, [], None, Action.RETRY),
        (NODE_FAIL, [], None, Action.RETRY),
        (PREEMPTED, [], None, Action.RESUBMIT),
        (CANCELED, after("preempted"), 75, Action.GIVE_UP),
        (FAILED, after("canceled"), 1, Action.GIVE_UP),
        (CANCELED, [], None, Action.GIVE_UP),
        (CANCELED, after("out of memory"), None, Action.RETRY),  # Slurm's own memory check cancels the job
    ],
)  # fmt: skip
def test_action(report, attempts, status, action):
    assert decide(attempts, EndReport(report, status, runtime=30)).action is action


@pytest.mark.parametrize(
    ("history", "reason", "sentence"),
    [
        (after("code error"), "code error", "attempt 1 (code error): rank 1 was killed"),
        (after("killed", "bad input"), "bad input", "attempt 2 (bad input)"),
        (after("diverged"), "diverged", "attempt 1 (diverged)"),
        (after("killed", "node failure"), "node failure", "failed twice at step 10"),
        ([attempt(reached=step) for step in (10, 11, 12)], "killed", "failed 3 times in succession"),
        (after("time limit", "time limit", start=5), "bad input", "60 minutes are too short"),
        (after(*4 * ["out of memory"]), "out of memory", "out of memory even after"),
    ],
)
def test_the_reason_for_no_further_attempt(history, reason, sentence):
    decision = decide(history, EndReport(runtime=60))
    assert (decision.action, decision.reason) == (Action.GIVE_UP, reason)
    assert sentence in decision.why


@pytest.mark.parametrize(
    "history",
    [
        [], after("finished"), after("killed"), after("disk full", "disk full"), after(*9 * ["preempted"], start=5),
        after(*9 * ["time limit"]), after("time limit", "preempted", start=5), after("killed", "preempted"),
        [attempt(reached=10), attempt(reached=11)], [attempt(reached=step, saved=step - 1) for step in range(1, 9)], [attempt(saved=5), attempt(saved=6)],
        after(*3 * ["out of memory"]), after(*4 * ["out of memory"], "finished", "killed"),
    ],
)  # fmt: skip
def test_an_attempt_that_may_succeed_is_made(history):
    assert decide(history, EndReport(runtime=60)).action is not Action.GIVE_UP


def test_a_training_that_never_writes_a_line_is_started_three_times():
    tries, actions = 0, []
    for job in (FAILED, PREEMPTED, LOST, FAILED):
        tries = count_without_record(tries, is_recorded=False, job=job)
        actions.append(decide([], EndReport(job, tries_without_record=tries)).action)
    assert actions == [Action.RETRY, Action.RESUBMIT, Action.RETRY, Action.GIVE_UP]
    assert count_without_record(tries, is_recorded=True, job=FAILED) == 0


def test_a_job_that_only_evaluates_is_given_up_with_the_evaluation_as_the_cause():
    decision = decide(after("finished"), EndReport(FAILED, tries_without_record=3))
    assert decision.action is Action.GIVE_UP
    assert decision.why == "3 consecutive starts ended after the training, as in its evaluation"


@pytest.mark.parametrize(("times", "memory"), [(0, 1000), (1, 1500), (2, 2250), (3, 3375), (7, 3375)])
def test_memory_is_raised_by_half_after_each_lack_of_memory(times, memory):
    history = after("killed", *times * ["out of memory"], "preempted")
    assert memory_for_next_attempt(1000, history) == memory
    assert count_out_of_memory([*history, attempt("finished")]) == 0
