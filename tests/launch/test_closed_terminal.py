"""A terminal closes: its processes get SIGHUP, and each write to the terminal fails (EIO)."""

import os
import subprocess

import pytest
from helpers.repository_copy import environment
from helpers.training_process import training, wait

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest, checkpoint_folders
from nnlo_lib.state.attempts import read_attempts

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("transport", ["simulated", pytest.param("mpi", marks=pytest.mark.exhaustive)])
def test_a_training_saves_its_last_step_and_records_its_end(tmp_path, transport):
    run = training(
        tmp_path, parallel={"transport": transport}, train={"epochs": 4000}, checkpoint={"every": "10 h"}
    )
    master, terminal = os.openpty()
    command = subprocess.Popen(
        run.command, cwd=tmp_path, env=environment(), preexec_fn=lambda: os.login_tty(terminal)
    )
    os.close(terminal)
    try:
        wait("an epoch", lambda: run.epochs_done() > 0 or command.poll() is not None)
        os.close(master)
        assert command.wait(250) == 75
    finally:
        command.kill()
    (attempt,) = read_attempts(run.job / "state")
    (saved,) = checkpoint_folders(run.job / "state/checkpoints")
    assert (attempt.reason, attempt.saved) == ("preempted", attempt.reached)
    assert CheckpointManifest.read(saved).step == attempt.reached > 0
