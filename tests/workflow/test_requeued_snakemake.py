"""A Snakemake that runs in a requeued Slurm job takes over the experiment from its killed earlier run."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytestmark = [pytest.mark.processes]

# As the Snakefile does: the lease is held until the process ends.
SNAKEMAKE = """
import sys
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.workflow.plan import Plan
try:
    Plan.of(Experiment.model_validate({"name": "e", "runs": {"r": {}}})).lease_experiment()
except UserError as error:
    sys.exit(str(error))
print("leads", flush=True)
sys.stdin.read()
"""


@contextmanager
def snakemake(folder, **variables):
    """Start a process that leases the experiment like Snakemake in a Slurm job with these variables."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    process = subprocess.Popen(
        [sys.executable, "-c", SNAKEMAKE], cwd=folder, env=clean | variables, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def leads(process):
    return process.stdout.readline() == "leads\n"


def lease_of(folder):
    return folder / "results/e/.workflow/lease.json"


def pretend_elsewhere(folder):
    """Edit the lease as if its owner were on another host, where its process cannot be checked."""
    path = lease_of(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "elsewhere"}))


def test_on_the_same_host(tmp_path):
    with snakemake(tmp_path, SLURM_JOB_ID="77") as first:
        assert leads(first)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert lease_of(tmp_path).exists()
        with snakemake(tmp_path, SLURM_JOB_ID="78") as second:
            assert leads(second)


def test_on_another_host_after_a_requeue(tmp_path):
    with snakemake(tmp_path, SLURM_JOB_ID="77") as first:
        assert leads(first)
        first.send_signal(signal.SIGKILL)
        first.wait()
        pretend_elsewhere(tmp_path)
        with snakemake(tmp_path, SLURM_JOB_ID="77", SLURM_RESTART_COUNT="1") as second:
            assert leads(second)
            assert json.loads(lease_of(tmp_path).read_text())["restarts"] == 1


def test_a_second_snakemake_of_a_live_job_is_refused(tmp_path):
    with snakemake(tmp_path, SLURM_JOB_ID="77") as first:
        assert leads(first)
        with snakemake(tmp_path, SLURM_JOB_ID="77") as second:
            assert not leads(second)
            assert "is being written by" in second.stderr.read()
        assert first.poll() is None
