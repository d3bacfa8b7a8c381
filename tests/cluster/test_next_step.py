"""What follows a job that did not succeed, from the record that its training left."""

import pytest

from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.cluster.next_step import Action, EndedJob, next_step
from nnlo_lib.state.attempts import Attempt

FAILED, LOST = JobReport(Fate.FAILED, "FAILED"), JobReport(Fate.INTERRUPTED, "unknown to the batch system")


def attempt(reason, job="7", number=1, saved=0, reached=0):
    """Return the record of an attempt of a job."""
    return Attempt(number, "", "", 1.0, "host", job, reason, f"words on {reason}", 0, reached, saved, 2)


@pytest.mark.parametrize(
    ("report", "attempts", "status", "action"),
    [
        (FAILED, [attempt("preempted", saved=5)], 75, Action.RESUBMIT),
        (FAILED, [attempt("time limit", saved=5)], 75, Action.RESUBMIT),
        (LOST, [attempt("node failure", reached=5)], None, Action.RESUBMIT),
        (FAILED, [attempt("killed", reached=5)], 1, Action.RETRY),
        (FAILED, [attempt("peer lost", reached=5)], 1, Action.RETRY),
        (FAILED, [attempt("out of memory")], 1, Action.RETRY),
        (FAILED, [attempt("code error")], 1, Action.GIVE_UP),
        (FAILED, [attempt("bad input")], 2, Action.GIVE_UP),
        (FAILED, [attempt("diverged")], 2, Action.GIVE_UP),
        (FAILED, [attempt("killed", reached=5, saved=1), attempt("killed", number=2, reached=5, saved=1)], 1, Action.GIVE_UP),
        (FAILED, [attempt("time limit"), attempt("time limit", number=2)], 75, Action.GIVE_UP),
        # The record is of an earlier job, and this job left none.
        (FAILED, [attempt("code error", job="6")], None, Action.RETRY),
        (FAILED, [], 2, Action.GIVE_UP),
        (FAILED, [], 75, Action.RESUBMIT),
        (FAILED, [], 1, Action.RETRY),
        (LOST, [], None, Action.RETRY),
        (JobReport(Fate.INTERRUPTED, "PREEMPTED"), [], None, Action.RESUBMIT),
        (JobReport(Fate.CANCELED, "CANCELLED by 0"), [attempt("preempted", saved=5)], 75, Action.GIVE_UP),
    ],
)  # fmt: skip
def test_action(report, attempts, status, action):
    assert next_step(EndedJob("7", report, attempts, status, runtime=30)).action is action


def test_the_reason_of_a_hopeless_job_has_the_words_of_its_error():
    step = next_step(EndedJob("7", FAILED, [attempt("code error")], 1))
    assert "words on code error" in step.why


def test_a_training_that_never_writes_a_line_is_not_tried_for_ever():
    steps = [next_step(EndedJob("7", FAILED, tries_without_record=count)).action for count in (1, 2, 3)]
    assert steps == [Action.RETRY, Action.RETRY, Action.GIVE_UP]
