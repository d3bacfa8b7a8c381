"""A rank that exits with status 0 does not stop the other ranks, even if they run longer."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.real, pytest.mark.mpi, pytest.mark.processes]

RANKS = """
import os, select, sys
from pathlib import Path
from mpi4py import MPI
from nnlo_lib.train.process_tuning import exit_process

rank = MPI.COMM_WORLD.Get_rank()
first = os.pidfd_open(MPI.COMM_WORLD.bcast(os.getpid()))
MPI.Finalize()
if rank:
    ended, *_ = select.select([first], [], [], 200)
    select.select([], [], [], 0.5)  # in which mpiexec would end this rank
    Path(sys.argv[1], f"{rank} saw {len(ended)} end").touch()
exit_process(0)
"""


def test_the_others_live_on(tmp_path):
    ranks = ["mpiexec", "-n", "3", sys.executable, "-c", RANKS, str(tmp_path)]
    ended = subprocess.run(ranks, timeout=300, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1 saw 1 end", "2 saw 1 end"]
