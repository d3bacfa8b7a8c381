"""Partitions and accounts of Slurm, and requests that never start; the answers were recorded from Slurm 22.05."""

import subprocess

import pytest

from nnlo_lib.cluster.slurm.site_check import refuse_impossible_jobs
from nnlo_lib.cluster.slurm.slurm_site import JobRequest, SlurmSite
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError

PARTITIONS = """\
PartitionName=low AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 Nodes=n[1-3] State=UP TotalCPUs=12
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO QoS=N/A MaxNodes=2 MaxTime=00:30:00 MinNodes=0 Nodes=n[1-3] State=UP TotalCPUs=12
"""


def answer(program, *arguments):
    """Answer like a cluster with two partitions and one account."""
    text = {"scontrol": PARTITIONS, "sacctmgr": "nnlo\nphysics\n"}[program]
    return subprocess.CompletedProcess([], 0, text, "")


def silent(program, *arguments):
    """Answer like a host without Slurm."""


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (JobRequest(), None),
        (JobRequest("debug", "physics", 30, 2), None),
        (JobRequest("low,debug", runtime=600), None),
        (JobRequest("nowhere"), r"partition nowhere does not exist.*low \(up to 1440 minutes\), debug \(up to 30 minutes\)"),
        (JobRequest("debug", runtime=31), r"resources.runtime is 31 minutes, more than partition debug allows"),
        (JobRequest(runtime=1441), r"more than partition low allows"),
        (JobRequest("debug", nodes=3), r"resources.nodes is 3"),
        (JobRequest(account="chemistry"), r"account chemistry is not one of yours.*nnlo, physics"),
    ],
)  # fmt: skip
def test_problems(request_, words):
    import re

    found = SlurmSite.ask(answer).problems_of([request_, request_])
    assert len(found) == bool(words)
    assert not words or re.search(words, found[0])


def test_nothing_is_refused_where_slurm_does_not_answer():
    assert not SlurmSite.ask(silent).problems_of([JobRequest("nowhere", "nobody", 1e9, 1000)])


def test_check_refuses_a_run_that_would_never_start(monkeypatch):
    monkeypatch.delenv("SBATCH_PARTITION", raising=False)
    settings = {"runs": {"good": {}, "long": {"resources": {"runtime": 2000}}}}
    with pytest.raises(UserError, match=r"resources.runtime is 2000 minutes"):
        refuse_impossible_jobs(Experiment.model_validate(settings), answer)
    assert "low (up to 1440 minutes)" in refuse_impossible_jobs(Experiment(), answer)
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    with pytest.raises(UserError, match="partition nowhere does not exist"):
        refuse_impossible_jobs(Experiment(), answer)
    with pytest.raises(UserError, match="is this a host of a Slurm cluster"):
        refuse_impossible_jobs(Experiment(), silent)
