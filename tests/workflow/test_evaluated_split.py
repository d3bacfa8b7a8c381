"""`nnlo run` names the samples on which it evaluated the model."""

import json

import numpy as np
import pytest
from helpers.observed_training import store, watched
from helpers.synthetic_store import handmade

from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.launch.attempt import LaunchOptions, complete_task
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.workflow.single_run import _print_evaluation


def with_splits(folder, *names):
    """Return the manifest of a store whose splits all have the samples of `store`."""
    split = Split(DataManifest.load(store(folder / "source")), "train")
    (inputs,), labels = split.take(np.arange(len(split)))
    return handmade(folder / "store", dict.fromkeys(names, (inputs, labels))).folder / "manifest.json"


@pytest.mark.parametrize(
    ("splits", "said"),
    [
        (("train", "test"), "test (200 samples): loss"),
        (("train", "validation"), "validation (200 samples): loss"),
        (("train",), "held back (40 samples): loss"),
    ],
)
def test_the_last_line_names_the_evaluated_samples(tmp_path, capsys, splits, said):
    task = watched(tmp_path / "job", with_splits(tmp_path, *splits), {}, data={"validation": 0.2})
    assert train_simulated(task, StopFlag())
    assert complete_task(task, LaunchOptions()).reason == "finished"
    _print_evaluation(task)
    assert said in capsys.readouterr().err
    assert json.loads(task.paths.evaluation.read_text())["samples"] in (40, 200)
