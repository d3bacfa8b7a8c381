"""`nnlo doctor` and the list of jobs of `nnlo watch` on a Slurm cluster."""

import os

import pytest
from helpers.nnlo_command import nnlo

from nnlo_lib.batch.batch_job import list_own_jobs
from nnlo_lib.batch.job_states import Fate
from nnlo_lib.launch.launcher import SharedMemoryCleanup

pytestmark = pytest.mark.slurm


@pytest.mark.real
def test_the_site_is_good_and_a_held_job_is_listed(slurm, tmp_path, monkeypatch):
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    # Slurm numbers the jobs of each throw-away cluster from 1, and MPICH names its memory by that number.
    left_behind = SharedMemoryCleanup()
    left_behind._before.clear()
    left_behind.remove_unused()
    done = nnlo("doctor", "--profile", "slurm", "--job", folder=tmp_path)
    assert done.returncode in (0, None), done.stdout
    assert "PMI: pmi2" in done.stdout
    assert "starts 2 ranks on" in done.stdout.splitlines()[-2]
    number = slurm.run("sbatch", "--parsable", "--hold", f"--chdir={tmp_path}", "--wrap=true")
    try:
        listed = list_own_jobs()[number]
        assert (listed.fate, listed.reason, listed.minutes_left) == (Fate.PENDING, "JobHeldUser", None)
    finally:
        slurm.run("scancel", number)
    assert os.listdir(tmp_path) == []
