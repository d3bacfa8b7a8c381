"""The examples of texts and pixels, shortened, are better than always naming the most frequent class."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.prepare_dataset import prepare_dataset
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task

REPOSITORY = Path(__file__).parents[2]
SHORT = {
    "gpt-text": ({"tokens": 32, "size": 40_000}, {"width": 32, "layers": 1}, 2),
    "unet-shapes": ({"train": 160, "test": 30, "side": 16}, {"filters": 6, "levels": 2}, 4),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_better_than_guessing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(REPOSITORY)
    torch.set_num_threads(1)
    reader_args, model_args, epochs = SHORT[name]
    settings = yaml.safe_load((REPOSITORY / f"config/experiments/{name}.yaml").read_text())
    settings["data"]["reader"]["args"] = reader_args
    settings["model"]["args"] = model_args
    settings["train"]["epochs"] = epochs
    settings["parallel"]["transport"] = "simulated"
    run = Experiment.model_validate(settings)
    manifest = tmp_path / "store/manifest.json"
    prepare_dataset(run.data, manifest.parent)
    task = Task(name, "run", run, 0, None, 1, manifest, tmp_path / "job")
    assert train_simulated(task, StopFlag())
    evaluate_model(run, manifest, task.paths.model, task.paths.evaluation)
    report = json.loads(task.paths.evaluation.read_text())
    labels = Split(DataManifest.load(manifest), "test").labels
    counts = np.bincount(labels.reshape(-1))
    assert report["accuracy"] > counts.max() / labels.size + 0.05
    if "iou" in report:
        # The most frequent class alone has the IoU of its share, and the others 0.
        assert report["iou"] > counts.max() / labels.size / np.count_nonzero(counts) + 0.1
