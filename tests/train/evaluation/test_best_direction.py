"""Tests of `better` in `train.restore_best` and `checkpoint.best`, for metrics whose names do not say the direction."""

import json

import pytest
from helpers.training_process import training

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.checkpoint.policy import checkpoints_to_keep
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.config.train import TrainConfig

# The share of correct samples, and its opposite in a name that promises the wrong direction.
METRICS = """
def f1(outputs, targets):
    return (outputs.argmax(1) == targets).float()

def brier_score(outputs, targets):
    return 1 - f1(outputs, targets)
"""


@pytest.mark.processes
@pytest.mark.parametrize(("name", "better"), [("f1", "larger"), ("brier_score", "smaller")])
def test_the_published_weights_are_those_of_the_best_epoch(tmp_path, name, better):
    code = tmp_path / "mine.py"
    code.write_text(METRICS)
    run = training(
        tmp_path,
        # The rate is large enough that neither the first nor the last epoch is the best.
        train={"epochs": 6, "optimizer": {"lr": 0.12}, "restore_best": {"metric": f"val_{name}", "better": better}},
        checkpoint={"best": {"metric": name, "better": better}, "keep": 1},
        metrics=[f"{code}:{name}"],
        parallel={"ranks": 2, "transport": "simulated"},
    )  # fmt: skip
    run.finish()
    values = [row[f"val_{name}"] for row in run.rows]
    best = (max if better == "larger" else min)(values)
    assert min(values) < max(values)
    summary = json.loads((run.job / "summary.json").read_text())
    assert summary["final"][f"val_{name}"] == best
    assert summary["published_step"] == run.rows[values.index(best)]["step"]


@pytest.mark.parametrize(("better", "kept"), [("larger", 2), ("smaller", 1)])
def test_the_best_checkpoint_follows_the_direction(better, kept):
    values = {1: 0.1, 2: 0.9, 3: 0.5, 4: 0.5}
    manifests = {
        number: CheckpointManifest("key", "code", 1, number, number, {"val_f1": value}, 0.0)
        for number, value in values.items()
    }
    config = CheckpointConfig(keep=1, best={"metric": "f1", "better": better})
    assert checkpoints_to_keep(config, manifests) == {4, kept}


def test_a_name_alone_keeps_its_form():
    """The form of the settings is part of the run's hash, and of the key of its checkpoints."""
    assert TrainConfig(restore_best="val_loss").model_dump()["restore_best"] == "val_loss"
    assert CheckpointConfig(best="val_loss").model_dump()["best"] == "loss"
