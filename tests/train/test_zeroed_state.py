"""After a power cut any file in `state/` that was not flushed may be empty or full of zeros; the next attempt resumes anyway."""

import os
import shutil
import signal
from dataclasses import replace

import pytest
from helpers.training_process import processes_of, training, under_way

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900)]
SETTINGS = {"ranks": 2, "train": {"epochs": 4}, "checkpoint": {"every": "1 epoch"}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = training(tmp_path_factory.mktemp("whole"), **SETTINGS)
    run.finish()
    return run


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """Return a training of which all processes were killed at once after two epochs."""
    run = training(tmp_path_factory.mktemp("cut"), **SETTINGS)
    run.finish("--set", "train.epochs=1")
    with under_way(run, 2):
        for pid in processes_of(run.folder):
            os.kill(pid, signal.SIGKILL)
    return run


FLUSHED = ("checkpoints", "code", "input_files.json")  # on the disk before the first step
DAMAGES = {"empty": lambda content: b"", "zeros": lambda content: bytes(len(content))}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_next_attempt_resumes(whole, cut, tmp_path, name):
    folder = tmp_path / "copy"
    shutil.copytree(cut.folder, folder)
    run = replace(cut, folder=folder)
    state = run.job / "state"
    files = [path for path in state.rglob("*") if path.is_file()]
    damaged = {
        str(path.relative_to(state)): path
        for path in files
        if path.relative_to(state).parts[0] not in FLUSHED
    }
    assert {
        "attempts.jsonl",
        "history.jsonl",
        "lease.json",
        "ledger.jsonl",
        "log.txt",
        "step",
    } <= damaged.keys()
    for path in damaged.values():
        path.write_bytes(DAMAGES[name](path.read_bytes()))
    said = run.finish()
    assert "Traceback" not in said, said
    assert "resumed at epoch" in said, said
    assert (run.weights, run.history) == (whole.weights, whole.history), said
