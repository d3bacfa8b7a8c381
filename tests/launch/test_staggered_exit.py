"""Ranks that exit later than others after a preemption are not recorded as killed."""

import signal

import pytest
from helpers.training_process import started as training
from helpers.training_process import under_way

from nnlo_lib.state.attempts import read_attempts

SLOW_TO_LEAVE = """
import sys, time
import torch
from mpi4py import MPI

RANK = MPI.COMM_WORLD.Get_rank()

class Slow:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def flush(self):
        self.stream.flush()
        if RANK and MPI.Is_finalized():
            time.sleep(1)

sys.stdout = Slow(sys.stdout)

def build(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0] * shape[1] * shape[2], classes))
"""


@pytest.mark.slow
def test_a_rank_that_is_slow_to_leave_was_not_killed(tmp_path):
    (tmp_path / "net.py").write_text(SLOW_TO_LEAVE)
    run = training(tmp_path, ranks=3, model={"name": "net.py:build", "args": {}}, train={"epochs": 400})
    with under_way(run, 2) as process:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=200)
    assert process.returncode == 75, said
    assert "stopped and saved" in said
    assert [attempt.reason for attempt in read_attempts(run.job / "state")] == ["preempted"]
