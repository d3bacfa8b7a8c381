"""Refused submissions: the scheduler's own sentences, as Slurm 22.05 and 24.11 and LSF 10.1 print them."""

import pytest

from nnlo_lib.cluster.submission.refusal import RefusalKind, classify_refusal, kind_of_known_values

SBATCH = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
TRANSIENT = [
    f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{SBATCH}{POLICY}",
    f"sbatch: error: AssocGrpSubmitJobsLimit\n{SBATCH}{POLICY}",
    f"sbatch: error: AssocMaxSubmitJobLimit\n{SBATCH}{POLICY}",
    f"{SBATCH}Socket timed out on send/recv operation",
    f"{SBATCH}Unable to contact slurm controller (connect failure)",
    f"{SBATCH}Slurm temporarily unable to accept job, sleeping and retrying",
    f"{SBATCH}Zero Bytes were transmitted or received",
    f"{SBATCH}Resource temporarily unavailable",
    "User has reached the pending job threshold. Job not submitted.",
    "Pending job threshold reached. Retrying in 60 seconds...",
    "LSF is down. Please wait ...",
]
PERMANENT = {
    f"{SBATCH}Invalid account or account/partition combination specified": "resources.account",
    f"sbatch: error: invalid partition specified: nowhere\n{SBATCH}Invalid partition name specified": "resources.partition",
    f"{SBATCH}Requested time limit is invalid (missing or exceeds some limit)": "resources.runtime",
    f"{SBATCH}Invalid generic resource (gres) specification": "parallel.gpus_per_rank",
    f"{SBATCH}Node count specification invalid": "resources.nodes",
    f"{SBATCH}Memory specification can not be satisfied": "resources.mem_mb",
    f"{SBATCH}Requested node configuration is not available": "resources.mem_mb",
    f"{SBATCH}Invalid qos specification": "nnlo-slurm-qos",
    f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{SBATCH}{POLICY}": "resources.runtime",
    "Job submission failed with exception: The given account other appears to be invalid. Available accounts:\nnnlo": "resources.account",
    "nowhere: No such queue. Job not submitted.": "resources.partition",
    "RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.": "resources.runtime",
}


@pytest.mark.parametrize("text", TRANSIENT)
def test_what_passes_is_waited_for(text):
    assert classify_refusal(text).kind is RefusalKind.TRANSIENT


@pytest.mark.parametrize("text", PERMANENT)
def test_a_mistake_is_named_with_its_key(text):
    refusal = classify_refusal(text, "known: low, high")
    assert refusal.kind is RefusalKind.PERMANENT
    assert PERMANENT[text] in refusal.sentence
    assert "known: low, high" in refusal.sentence
    assert "\n" not in refusal.sentence
    assert kind_of_known_values(text)


def test_the_command_is_left_out_of_the_sentence():
    text = f"SLURM sbatch failed. The error message was '{SBATCH}Invalid qos specification'.\n    sbatch call:\n  sbatch --x"
    assert "sbatch" not in classify_refusal(text).sentence.replace("SBATCH_", "")


def test_only_a_lost_answer_may_have_submitted_the_job():
    assert classify_refusal(f"{SBATCH}Socket timed out on send/recv operation").may_be_submitted
    assert not classify_refusal(TRANSIENT[0]).may_be_submitted


def test_unknown_words_are_neither():
    assert classify_refusal("sbatch: error: something new").kind is RefusalKind.UNKNOWN
