"""A power cut at any moment of `nnlo run` with two MPI ranks: launcher, ranks, publication and evaluation."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from helpers.power_cut_processes import ProcessRecorder
from helpers.repository_copy import environment
from helpers.training_process import Training, training

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.processes, pytest.mark.timeout(3600)]
EVERY_STATE = "NNLO_EVERY_STATE" in os.environ  # else TRIED of them, because each is a training
TRIED = 6
SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
    "train": {"epochs": 2, "batch_size": 400},
    "checkpoint": {"every": "2 steps", "keep": 2},
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return an undisturbed training and the states that a power cut leaves of its results."""
    folder = tmp_path_factory.mktemp("recorded")
    run = training(folder, forked=False, **SETTINGS)
    training(folder, **SETTINGS).finish()  # makes the store
    (folder / "results").rename(folder / "first")
    (folder / "results").mkdir()
    with ProcessRecorder(folder / "results") as recorder:
        done = subprocess.run(
            run.command, cwd=folder, env=environment() | recorder.environment,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return run, recorder


def prepared(folder: Path, whole: Training, state) -> Training:
    """Return a training that finds what a power cut has left."""
    run = training(folder, **SETTINGS)
    (folder / "data").symlink_to(whole.folder / "data")
    (folder / "results").mkdir()
    state.write(folder / "results")
    return run


def test_all_processes_were_recorded(recorded):
    """Without the launcher's or a rank's writes, the replay would prove less than it says."""
    _, recorder = recorded
    assert len(recorder.processes) >= 3
    names = {Path(name).name for state in recorder.states for name in state.files}
    assert {"attempts.jsonl", "lease.json", "log.txt", "0", "1", "evaluation.json"} <= names


def test_a_training_ends_with_the_undisturbed_bits_history_and_attempts(recorded, tmp_path):
    whole, recorder = recorded
    evaluation = (whole.job / "evaluation.json").read_bytes()
    step = 1 if EVERY_STATE else max(1, len(recorder.states) // TRIED)
    states = recorder.states[::step]
    print(f"{recorder.moments} moments, {len(recorder.states)} different states, {len(states)} tried")
    for number, state in enumerate(states):
        where = f"{state.kind} at {state.moment} ({state.event})"
        run = prepared(tmp_path / str(number), whole, state)
        said = run.finish()
        assert run.weights == whole.weights, where
        assert run.history == whole.history, where
        assert "Traceback" not in said, where
        assert (run.job / "evaluation.json").read_bytes() == evaluation, where
        # A cut between publication and record loses the record: a finished run is not changed any more.
        if "already finished" in said:
            continue
        assert not (run.job / "state/lease.json").exists(), where
        attempts = (run.job / "state/attempts.jsonl").read_text(errors="replace").splitlines()
        assert json.loads(attempts[-1])["reason"] == "finished", where
