"""A power cut at any moment of a training loses at most what the last checkpoint did not hold."""

import json
import os
import re

import pytest
from helpers.algorithm_trainings import manifest, measured
from helpers.power_cut import PowerCutRecorder

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config import Experiment
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

__all__ = ["manifest"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
EVERY_STATE = "NNLO_EVERY_STATE" in os.environ  # else 150 of them, because each is a training
SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
    "train": {"epochs": 3, "batch_size": 200, "validate_every": 2},
    "algorithm": {"name": "dsgd"},
    "topology": {"name": "cycle"},
    "parallel": {"ranks": 3, "transport": "simulated"},
    "checkpoint": {"every": "2 steps", "keep": 2},
}


def task(folder, manifest):
    run = Plan.of(Experiment.model_validate(SETTINGS)).run("dsgd")
    return Task("t", "job", run, 0, None, 1, manifest, folder)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, manifest):
    """Return an undisturbed training and the states that a power cut leaves."""
    folder = tmp_path_factory.mktemp("recorded")
    job = task(folder / "job", manifest)
    with PowerCutRecorder(folder) as recorder:
        assert train_simulated(job, StopFlag())
    return job, recorder


def newest_step(folder) -> int:
    """Return the step of the newest checkpoint that is complete in a state."""
    found = [CheckpointManifest.read(each).step for each in folder.glob("job/state/checkpoints/[0-9]*")]
    return max(found, default=0)


def resumed_step(job) -> int:
    """Return the step at which the last attempt resumed."""
    text = (job.state / "log.txt").read_text(errors="replace")
    found = re.findall(r"resumed at epoch (\d+), step (\d+)", text)
    return int(found[-1][0]) * 3 + int(found[-1][1]) if found else 0


def test_a_training_ends_with_the_undisturbed_bits_and_history(recorded, manifest, tmp_path):
    whole, recorder = recorded
    expected, ledger = measured(whole), (whole.state / "ledger.jsonl").read_text()
    states = recorder.states if EVERY_STATE else recorder.states[:: len(recorder.states) // 150]
    print(f"{recorder.moments} moments, {len(recorder.states)} different states, {len(states)} tried")
    for number, state in enumerate(states):
        folder = tmp_path / str(number)
        folder.mkdir()
        state.write(folder)
        job, where = task(folder / "job", manifest), f"{state.kind} at {state.moment} ({state.event})"
        safe = newest_step(folder)
        assert train_simulated(job, StopFlag()), where
        assert measured(job) == expected, where
        assert (job.state / "ledger.jsonl").read_text() == ledger, where
        assert json.loads((job.folder / "summary.json").read_text())["steps"] == 9
        assert resumed_step(job) >= safe, where
