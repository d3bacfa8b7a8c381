"""Starts that cannot succeed: refused before the launch, or explained after it, with the remedy."""

import shutil
from collections import namedtuple
from types import SimpleNamespace

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.launch import launcher
from nnlo_lib.launch.launcher import refuse_dead_allocation, shared_memory_problem

UNKNOWN, NO_CLUSTER = "Invalid job id specified", "fatal: Could not establish a configuration source"


@pytest.mark.parametrize(
    ("answer", "text", "variables", "refused"),
    [
        (UNKNOWN, "mpiexec", {}, "Slurm does not know this job"),
        (NO_CLUSTER, "mpiexec", {}, "belongs to no cluster of Slurm"),
        ("Unable to contact slurm controller", "mpiexec", {}, ""),
        ("", "mpiexec", {}, ""),  # the job is alive
        (UNKNOWN, "mpiexec", {"HYDRA_LAUNCHER": "fork"}, ""),
        (UNKNOWN, "mpiexec -bootstrap fork", {}, ""),
        (UNKNOWN, "mpiexec", {"SLURM_JOB_ID": ""}, ""),
        (None, "mpiexec", {}, "this host has no srun"),
    ],
)
def test_variables_of_a_job_that_is_over(tmp_path, monkeypatch, answer, text, variables, refused):
    if answer is not None:
        (tmp_path / "srun").touch(0o755)
    monkeypatch.setattr(launcher, "request_scheduler", lambda *_: answer)
    environment = {"SLURM_JOB_ID": "7", "PATH": str(tmp_path)} | variables
    command = SimpleNamespace(text=text, is_hydra=True)
    if not refused:
        refuse_dead_allocation(command, environment)
        return
    with pytest.raises(UserError, match=f"SLURM_JOB_ID is 7, but .*{refused}.*unset SLURM_JOB_ID"):
        refuse_dead_allocation(command, environment)


@pytest.mark.parametrize(
    ("ranks", "free", "words"), [(2, 1, "/dev/shm has 1 MiB"), (4, 5, "has 1 MiB"), (4, 8, ""), (1, 0, "")]
)
def test_shared_memory_that_is_too_small_is_named(monkeypatch, ranks, free, words):
    usage = namedtuple("usage", "total used free")(1 << 20, 0, free << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    run = SimpleNamespace(parallel=SimpleNamespace(ranks=ranks, transport="mpi"))
    problem = shared_memory_problem(SimpleNamespace(run=run))
    assert words in problem
    assert bool(words) == bool(problem)
