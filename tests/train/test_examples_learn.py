"""The examples of config/experiments on the embedded digits do not end at guessing level.

CI tries one seed of each example, `NNLO_EVERY_SEED=1` tries three.
"""

import json
import os
from pathlib import Path

import pytest
import torch
import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.report.statistics.guessing import guessing_level
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.prepare_dataset import prepare_dataset
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "config/experiments"
SETTINGS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.glob("*.yaml"))}
ON_DIGITS = [
    name for name, each in SETTINGS.items() if "dataset" not in each.get("data", {}) and "search" not in each
]
SEEDS = (1, 2, 3) if os.environ.get("NNLO_EVERY_SEED") else (1,)
CASES = [
    # The asynchronous server is the one that failed.
    pytest.param(name, seed, marks=[] if (name, seed) == ("downpour", 1) else [pytest.mark.slow])
    for name in ON_DIGITS
    for seed in SEEDS
]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Return the manifest of the embedded digits."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("digits") / "hdf5" / "manifest.json"
    prepare_dataset(Experiment().data, path.parent)
    return path


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_an_example_learns(tmp_path, manifest, name, seed):
    settings = SETTINGS[name]
    parallel = settings.get("parallel", {}) | {"transport": "simulated"}
    plan = Plan.of(Experiment.model_validate(settings | {"parallel": parallel}))
    for run in plan.runs:
        folder = tmp_path / run
        job = Task(name, run, plan.run(run), seed, None, 1, manifest, folder)
        assert train_simulated(job, StopFlag())
        evaluate_model(job.run, manifest, job.paths.model, job.paths.evaluation)
        report = json.loads(job.paths.evaluation.read_text())
        assert guessing_level(report) is None, f"{run}: accuracy {report['accuracy']}"
