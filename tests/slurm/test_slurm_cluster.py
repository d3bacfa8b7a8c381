"""The temporary Slurm cluster has the properties that the other tests of this folder rely on."""

import re
import sys

import pytest
from helpers.slurm_cluster import ACCOUNT, NODES, Slurm

pytestmark = pytest.mark.slurm

ALLREDUCE = "from mpi4py import MPI; print('sum', MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1))"


def submit(slurm: Slurm, *options: str) -> str:
    """Submit a job and return its number."""
    return slurm.run("sbatch", "--parsable", f"--account={ACCOUNT}", "--output=/dev/null", *options)


def state(slurm: Slurm, job: str) -> str:
    """Return the state of a job in Slurm's accounting."""
    return slurm.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State")


def test_nodes_are_idle(slurm: Slurm) -> None:
    slurm.wait("all nodes are idle", slurm.idle)


def test_srun_reaches_two_nodes(slurm: Slurm) -> None:
    printed = slurm.run("srun", "-N2", "-n2", "sh", "-c", "echo $SLURMD_NODENAME").split()
    assert len(set(printed)) == 2
    assert set(printed) <= set(NODES)


def test_accounting_sees_how_a_job_ended(slurm: Slurm) -> None:
    good, bad = submit(slurm, "--wrap=true"), submit(slurm, "--wrap=exit 3")
    slurm.wait("the good job is COMPLETED", lambda: state(slurm, good) == "COMPLETED")
    slurm.wait("the bad job is FAILED", lambda: state(slurm, bad) == "FAILED")


def test_mpi_sums_across_two_nodes(slurm: Slurm) -> None:
    launch = ["srun", "--mpi=pmi2", "-N2", "-n2", "--kill-on-bad-exit=1"]
    printed = slurm.run(*launch, sys.executable, "-c", ALLREDUCE)
    assert sorted(printed.splitlines()) == ["sum 3", "sum 3"]


def test_a_low_job_gives_way_to_a_high_one_and_is_requeued(slurm: Slurm) -> None:
    everything = ["--nodes=3", "--exclusive"]
    low = submit(slurm, *everything, "--partition=low", "--requeue", "--wrap=srun sleep 600")
    slurm.wait("the low job runs", lambda: state(slurm, low) == "RUNNING")
    high = submit(slurm, *everything, "--partition=high", "--wrap=srun sleep 1")
    slurm.wait("the high job is done", lambda: state(slurm, high) == "COMPLETED")
    slurm.wait("the low job runs again", lambda: state(slurm, low) == "RUNNING")
    assert re.search(r"Restarts=1\b", slurm.run("scontrol", "show", "job", low))
    slurm.run("scancel", low)
    slurm.wait("the low job is gone", slurm.idle)
