"""Refusals of bsub and their consequences; the sentences come from lsb_sperror(3) and IBM's manual."""

import pytest

from nnlo_lib.cluster.submission.refusal import classify_refusal, kind_of_known_values

UPSTREAM = "LSF job submission failed. The error message was {}"
REFUSALS = {
    "User <me>: Pending job threshold reached. Retrying in 60 seconds...": "transient",
    "User has reached the pending job threshold. Job not submitted.": "transient",
    "The destination queue has reached its job limit. Job not submitted.": "transient",
    "No job Id can be used now. Job not submitted.": "transient",
    "LSF is down. Please wait ...": "transient",
    "LSF is processing your request. Please wait ...": "transient",
    "Cannot connect to LSF. Please wait ...": "transient",
    "batch system daemon not responding ... still trying": "transient",
    "Failed in an LSF library call: Communication time out. Job not submitted.": "transient",
    "Failed in sending/receiving a message: Connection reset by peer. Job not submitted.": "transient",
    "nowhere: No such queue. Job not submitted.": "permanent",
    "Queue has been closed. Job not submitted.": "permanent",
    "User cannot use the queue. Job not submitted.": "permanent",
    "RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.": "permanent",
    "MEMLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.": "permanent",
    "Too many processors requested. Job not submitted.": "permanent",
    "Bad resource requirement syntax. Job not submitted.": "permanent",
    "Request from non-LSF host rejected. Job not submitted.": "unknown",
    "User permission denied. Job not submitted.": "unknown",
}


@pytest.mark.parametrize(("said", "kind"), REFUSALS.items())
def test_kinds(said: str, kind: str) -> None:
    assert classify_refusal(UPSTREAM.format(said)).kind.value == kind


@pytest.mark.parametrize(
    ("said", "key"),
    [("nowhere: No such queue.", "resources.partition"), ("RUNLIMIT: Cannot exceed", "resources.runtime"), ("MEMLIMIT: Cannot exceed", "resources.mem_mb")],
)  # fmt: skip
def test_a_mistake_names_its_key(said: str, key: str) -> None:
    assert f"set {key}" in classify_refusal(UPSTREAM.format(said)).sentence


def test_only_a_lost_answer_may_hide_a_submitted_job() -> None:
    assert classify_refusal(
        "Failed in sending/receiving a message: Connection reset by peer"
    ).may_be_submitted
    assert not classify_refusal("User <me>: Pending job threshold reached.").may_be_submitted


def test_a_wrong_queue_asks_for_the_names_of_queues() -> None:
    assert kind_of_known_values("nowhere: No such queue. Job not submitted.") == "queues"
