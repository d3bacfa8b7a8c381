"""Refused submissions: sentences of Slurm 22.05 and 24.11, and of LSF in lsb_sperror(3) and its manual."""

import pytest

from nnlo_lib.batch.refusals import RefusalKind, classify_refusal

SBATCH = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
LSF = "LSF job submission failed. The error message was "
LOST = [  # the answer of a scheduler that may have accepted the job
    f"{SBATCH}Zero Bytes were transmitted or received",
    f"{SBATCH}Socket timed out on send/recv operation",
    "Failed in sending/receiving a message: Connection reset by peer. Job not submitted.",
]
TRANSIENT = [
    *LOST,
    f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{SBATCH}{POLICY}",
    f"sbatch: error: AssocGrpSubmitJobsLimit\n{SBATCH}{POLICY}",
    f"sbatch: error: AssocMaxSubmitJobLimit\n{SBATCH}{POLICY}",
    f"{SBATCH}Unable to contact slurm controller (connect failure)",
    f"{SBATCH}Slurm temporarily unable to accept job, sleeping and retrying",
    f"{SBATCH}Resource temporarily unavailable",
    "User <me>: Pending job threshold reached. Retrying in 60 seconds...",
    "User has reached the pending job threshold. Job not submitted.",
    "The destination queue has reached its job limit. Job not submitted.",
    "No job Id can be used now. Job not submitted.",
    "LSF is down. Please wait ...",
    "LSF is processing your request. Please wait ...",
    "Cannot connect to LSF. Please wait ...",
    "batch system daemon not responding ... still trying",
    "Failed in an LSF library call: Communication time out. Job not submitted.",
]
PERMANENT = {
    f"{SBATCH}Invalid account or account/partition combination specified": "resources.account",
    f"sbatch: error: invalid partition specified: nowhere\n{SBATCH}Invalid partition name specified": "resources.partition",
    f"{SBATCH}Requested time limit is invalid (missing or exceeds some limit)": "resources.runtime",
    f"{SBATCH}Invalid generic resource (gres) specification": "parallel.gpus_per_rank",
    f"{SBATCH}Node count specification invalid": "resources.nodes",
    f"{SBATCH}Memory specification can not be satisfied": "resources.mem_mb",
    f"{SBATCH}Requested node configuration is not available": "resources.mem_mb",
    f"{SBATCH}More processors requested than permitted": "resources.nodes or parallel",
    f"{SBATCH}Invalid qos specification": "nnlo-slurm-qos",
    f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{SBATCH}{POLICY}": "resources.runtime",
    "Job submission failed with exception: The given account other appears to be invalid. Available accounts:\nnnlo": "resources.account",
    "nowhere: No such queue. Job not submitted.": "resources.partition",
    "Queue has been closed. Job not submitted.": "",
    "User cannot use the queue. Job not submitted.": "",
    "RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.": "resources.runtime",
    "MEMLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.": "resources.mem_mb",
    "Too many processors requested. Job not submitted.": "",
    "Bad resource requirement syntax. Job not submitted.": "",
}
UNKNOWN = [
    "sbatch: error: something new",
    "Request from non-LSF host rejected. Job not submitted.",
    "User permission denied. Job not submitted.",
]


@pytest.mark.parametrize("text", TRANSIENT)
def test_a_refusal_that_passes_is_waited_for(text):
    refusal = classify_refusal(text)
    expected = RefusalKind.LOST if text in LOST else RefusalKind.TRANSIENT
    assert refusal.kind is classify_refusal(LSF + text).kind is expected


@pytest.mark.parametrize("text", PERMANENT)
def test_a_mistake_is_named_with_its_key(text):
    refusal = classify_refusal(text, "known: low, high")
    assert refusal.kind is RefusalKind.PERMANENT
    assert PERMANENT[text] in refusal.sentence
    assert "\n" not in refusal.sentence
    assert "known: low, high" in refusal.sentence


@pytest.mark.parametrize("text", UNKNOWN)
def test_unknown_words_are_neither(text):
    assert classify_refusal(text).kind is RefusalKind.UNKNOWN


def test_the_command_is_left_out_of_the_sentence():
    text = f"SLURM sbatch failed. The error message was '{SBATCH}Invalid qos specification'.\n    sbatch call:\n  sbatch --x"
    assert "sbatch" not in classify_refusal(text).sentence.replace("SBATCH_", "")
