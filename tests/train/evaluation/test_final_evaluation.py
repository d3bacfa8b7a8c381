"""The final evaluation: batches within the memory, metrics of all samples.

No GPU is needed: a function in place of the measurement runs out of memory.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.training_here import simulate
from torch import nn

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.set_metrics import set_metric
from nnlo_lib.reliability.file_checks import check_evaluation
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.evaluation import evaluate
from nnlo_lib.train.evaluation.evaluate import EVALUATION_BATCH_SIZE
from nnlo_lib.train.freshness import is_evaluated
from nnlo_lib.train.task import Task


@pytest.fixture
def task(tmp_path, manifest):
    """Return a finished training on the digits."""
    run = Experiment.model_validate(
        {
            "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
            "train": {"epochs": 1, "batch_size": 100},
            "parallel": {"ranks": 1, "transport": "simulated"},
        }
    )
    task = Task("t", "t", run, 0, None, 1, manifest, tmp_path / "results")
    simulate(task)
    return task


@pytest.mark.parametrize("odd", [[0.0, 0.0, 9.0], [float("nan"), 9.0, 0.0]], ids=["another class", "NaN"])
def test_a_matrix_without_place_for_a_prediction_is_left_out(odd):
    """A model with more outputs than classes can predict a class that the data do not have."""
    rows = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0]])
    labels, problem = torch.tensor([0, 1, 1]), build_problem(Experiment.model_validate({}))
    plain = evaluate.test_result(nn.Identity(), [((rows,), labels)], problem, 2)
    assert plain.report["confusion"] == [[1, 0], [1, 1]]
    rows[2] = torch.tensor(odd)
    found = evaluate.test_result(nn.Identity(), [((rows,), labels)], problem, 2)
    assert "confusion" not in found.report
    assert found.report["accuracy"] == plain.report["accuracy"] == pytest.approx(2 / 3)


def test_batches_are_halved_until_they_fit_the_memory():
    tried = []

    def measure(size):
        tried.append(size)
        if size > largest:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return size

    largest = 100
    assert evaluate.within_memory(measure) == 62
    assert tried == [EVALUATION_BATCH_SIZE, 250, 125, 62]
    largest = 0
    with pytest.raises(UserError, match="the memory of the GPU is too small to evaluate one sample"):
        evaluate.within_memory(measure)


def test_metrics_of_all_samples_follow_the_saved_predictions(task, monkeypatch):
    """An edit of `metrics` evaluates the model again; too many numbers are left out, not their metrics."""
    run = task.run.model_copy(update={"metrics": ("accuracy", "f1", "roc_auc")})
    edited = replace(task, run=run)
    evaluate.evaluate_model(task.run, task.manifest, task.paths.model, task.paths.evaluation)
    assert is_evaluated(task)
    assert not is_evaluated(edited)
    evaluate.evaluate_model(run, task.manifest, task.paths.model, task.paths.evaluation)
    assert is_evaluated(edited)
    report, saved = json.loads(task.paths.evaluation.read_text()), np.load(task.paths.predictions)
    split = Split(DataManifest.load(task.manifest), "test")
    assert saved["targets"].tolist() == split.take(saved["samples"])[1].tolist()
    assert saved["outputs"].sum(1) == pytest.approx(1)
    assert (saved["outputs"].argmax(1) == saved["targets"]).mean() == pytest.approx(report["accuracy"])
    for name in ("f1", "roc_auc"):
        assert report[name] == set_metric(name, saved["outputs"], saved["targets"], saved["predicted"])
    assert report["predictions"] == "probability"
    assert not [finding for finding in check_evaluation(FinishedRun(task.folder)) if finding.status != "ok"]

    monkeypatch.setattr(evaluate, "MAX_SAVED_NUMBERS", 1000)
    evaluate.evaluate_model(run, task.manifest, task.paths.model, task.paths.evaluation)
    again = json.loads(task.paths.evaluation.read_text())
    assert (again["f1"], again["predictions"]) == (report["f1"], "left out: 3,550 numbers, more than 1,000")
    assert not np.load(task.paths.predictions).files
    task.paths.predictions.unlink()
    assert not is_evaluated(edited)
