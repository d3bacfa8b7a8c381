"""Tests of `final` in summary.json: metrics of the published weights, also if nodes keep models of their own."""

import json

import numpy as np
import pytest
import torch
from helpers.training_here import training_here
from safetensors.torch import load_file

from nnlo_lib.data.partition.partition_file import load_partition
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.factory import build_problem
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.evaluation.evaluate import evaluation_batches, evaluation_sums
from nnlo_lib.train.evaluation.published_model import load_published_model

# An algorithm whose nodes agree, and settings in which nodes differ much from their mean.
TRAININGS = {
    "allreduce": {"algorithm": {"name": "allreduce"}},
    "dinno": {"algorithm": {"name": "dinno"}, "topology": {"name": "cycle"}},
    "individual": {"algorithm": {"name": "individual"}},
    "best of individual": {"algorithm": {"name": "individual"}, "restore_best": "val_loss"},
}


def measured(run):
    """Return the metrics of model.safetensors on the validation samples."""
    finished = FinishedRun(run.job)
    data = DataManifest.load(run.folder / finished.summary["data"]["manifest"])
    module, tensors = load_published_model(finished.config, data, finished.paths.model, "cpu")
    assert load_file(finished.paths.model).keys() == module.state_dict().keys()
    problem, samples = build_problem(finished.config), load_partition(finished.paths.partition)[0]
    with torch.no_grad():
        sums = evaluation_sums(
            module, evaluation_batches(module, Split(data, "train"), np.asarray(samples), tensors), problem
        )
    return problem.means(sums)


@pytest.mark.parametrize("name", TRAININGS)
def test_final_metrics_are_those_of_the_published_weights(tmp_path, name):
    settings = dict(TRAININGS[name])
    train = {
        "epochs": 2,
        "batch_size": 64,
        **({"restore_best": best} if (best := settings.pop("restore_best", "")) else {}),
    }
    run = training_here(tmp_path, ranks=4, train=train, **settings)
    run.finish()
    final = json.loads((run.job / "summary.json").read_text())["final"]
    for metric, value in measured(run).items():
        assert final[f"val_{metric}"] == pytest.approx(value, rel=1e-6)
    apart = name != "allreduce"
    assert ("val_loss_mean" in final) == apart
    if apart:
        rows = {row["val_loss"]: row for row in run.rows}
        row = rows[min(rows)] if best else run.rows[-1]
        assert final["val_accuracy_mean"] == row["val_accuracy"]
        assert final["val_accuracy_min"] <= final["val_accuracy_mean"] <= final["val_accuracy_max"]
        assert final["val_loss"] != final["val_loss_mean"]
