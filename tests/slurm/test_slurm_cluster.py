"""The temporary Slurm cluster has the properties that the other tests of this folder rely on."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.slurm_clients import calls, fail_calls, failures_left
from helpers.slurm_cluster import ACCOUNT, NODES, Slurm, cluster
from helpers.slurm_options import ACCOUNTING, CANCEL, PLAIN

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


@pytest.fixture(scope="module")
def plain(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Start a cluster without accounting, if Slurm is installed."""
    with cluster(tmp_path_factory.mktemp("plain"), replace(PLAIN, min_job_age_s=2)) as running:
        yield running


def known(slurm: Slurm, job: str) -> dict[str, str]:
    """Return what slurmctld knows about a job; return nothing if the job is forgotten."""
    # One call, because slurmctld may forget the job between two calls.
    try:
        text = slurm.run("scontrol", "--oneliner", "show", "job", job)
    except RuntimeError as failure:
        if "Invalid job id" not in str(failure):
            raise
        return {}
    return dict(entry.split("=", 1) for entry in text.split() if "=" in entry)


def error(slurm: Slurm, *command: str, folder: Path) -> str:
    """Return what a command that fails prints as its error."""
    done = subprocess.run(
        command, cwd=folder, env=slurm.environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode, done.stdout
    return done.stderr


def test_without_accounting_jobs_run_and_sacct_fails(plain: Slurm, tmp_path: Path) -> None:
    assert not (plain.folder / "mysql").exists()
    # Held, because slurmctld soon forgets a job that has ended.
    job = plain.run("sbatch", "--parsable", "--hold", "--output=/dev/null", f"--wrap=touch {tmp_path}/ran")
    assert known(plain, job)["Partition"] == PLAIN.low
    plain.run("scontrol", "release", job)
    plain.wait("the job runs", (tmp_path / "ran").exists)
    for client in ("sacct", "sacctmgr list user"):
        assert "disabled" in (said := error(plain, *client.split(), folder=tmp_path)) or "not running" in said


def test_a_job_that_ended_is_forgotten(plain: Slurm) -> None:
    job = plain.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=true")
    plain.wait("the job is forgotten", lambda: not known(plain, job))
    assert job not in plain.run("squeue", "--states=all", "--noheader", "--format=%A").split()


def test_calls_fail_on_request_in_one_folder(plain: Slurm, tmp_path: Path) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    for folder in (here, other):
        folder.mkdir()
    fail_calls(here, "squeue", 2)
    subprocess.run(["squeue"], cwd=other, env=plain.environment, check=True, capture_output=True)
    assert "Unable to contact slurm controller" in error(plain, "squeue", folder=here)
    assert failures_left(here, "squeue") == 1
    error(plain, "squeue", folder=here)
    subprocess.run(["squeue"], cwd=here, env=plain.environment, check=True, capture_output=True)
    assert (calls(plain.folder, "squeue", here), calls(plain.folder, "squeue", other)) == (3, 1)
    fail_calls(here, "sbatch", 1)
    assert "Socket timed out" in error(plain, "sbatch", "--wrap=true", folder=here)


def test_preemption_that_cancels_and_jobs_without_requeue(slurm: Slurm, tmp_path: Path) -> None:
    with cluster(tmp_path / "cancel", CANCEL) as site:
        everything = ["--nodes=3", "--exclusive", "--output=/dev/null"]
        low = site.run("sbatch", "--parsable", *everything, "--wrap=srun sleep 600")
        site.wait("the low job runs", lambda: known(site, low)["JobState"] == "RUNNING")
        assert known(site, low)["Requeue"] == "0"
        assert known(site, low)["Account"] == CANCEL.account
        site.run("sbatch", f"--partition={CANCEL.high}", *everything, "--wrap=true")
        site.wait("the low job is preempted", lambda: known(site, low)["JobState"] == "PREEMPTED")


def test_limits_and_the_killer_of_a_site_with_accounting(slurm: Slurm, tmp_path: Path) -> None:
    eat = "import numpy, time; eaten = numpy.ones(40_000_000); time.sleep(600)"
    with cluster(tmp_path / "site", ACCOUNTING) as site:
        limited = ["sbatch", "--parsable", "--account=limited", "--output=/dev/null", "--wrap=sleep 600"]
        jobs = [site.run(*limited) for _ in range(ACCOUNTING.max_submit_jobs or 0)]
        assert "job submit limit" in error(site, *limited, folder=tmp_path)
        site.run("scancel", *jobs)
        script = f"--wrap={sys.executable} -c '{eat}'"
        log = tmp_path / "eaten.log"
        job = site.run("sbatch", "--parsable", "--mem=100", f"--output={log}", script)
        site.wait("the job is killed", lambda: known(site, job)["JobState"] == "FAILED")
        assert "exceeded memory limit" in log.read_text()
        assert known(site, job)["ExitCode"] == "0:9"
        assert (
            "invalid account"
            in error(site, "sbatch", "--account=strangers", "--wrap=true", folder=tmp_path).lower()
        )
