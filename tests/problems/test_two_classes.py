"""Tests of two classes with one output: metrics agree with scikit-learn, whatever the loss makes of the outputs."""

import numpy as np
import pytest
import torch
from sklearn import metrics

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.base import build_problem

draws = np.random.default_rng(3)
LABELS = draws.integers(2, size=200)
LOGITS = draws.normal(size=200) + 2 * LABELS - 1
CHANCES = 1 / (1 + np.exp(-LOGITS))
SHIFTED = draws.normal(0.3, 0.4, size=200) + 0.4 * LABELS  # as after mse, which pulls to 0 and 1


def measured(names, outputs, **settings):
    problem = build_problem(Run.model_validate({"metrics": names, **settings}))
    given = torch.from_numpy(outputs)[:, None]
    return problem.means(problem.sums_of_outputs(given, torch.from_numpy(LABELS)))


@pytest.mark.parametrize("loss", ["mae", {"0": "mse"}])
def test_the_threshold_of_one_output_follows_from_its_loss(loss):
    found = measured(["accuracy", "top1_accuracy", "top2_accuracy", "binary_accuracy"], SHIFTED, loss=loss)
    wanted = metrics.accuracy_score(LABELS, SHIFTED > 0.5)
    assert found["accuracy"] == found["top1_accuracy"] == pytest.approx(wanted, rel=1e-12)
    assert found["binary_accuracy"] == pytest.approx(wanted, rel=1e-6)
    assert found["top2_accuracy"] == 1.0


@pytest.mark.parametrize("names", [["main", "side"], ["side", "main"]])
def test_the_threshold_of_an_output_belongs_to_its_own_loss_in_any_order(names):
    losses = {"main": "binary_cross_entropy", "side": "mse"}
    run = {"loss": {name: losses[name] for name in names}, "metrics": ["accuracy", "accuracy@side"]}
    problem = build_problem(Run.model_validate(run))
    outputs = {"main": torch.from_numpy(LOGITS)[:, None], "side": torch.from_numpy(SHIFTED)[:, None]}
    found = problem.means(problem.sums_of_outputs(outputs, torch.from_numpy(LABELS)))
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(LABELS, LOGITS > 0), rel=1e-12)
    assert found["side_accuracy"] == pytest.approx(metrics.accuracy_score(LABELS, SHIFTED > 0.5), rel=1e-12)
    assert np.array_equal(problem.predicted(outputs), LOGITS > 0)


@pytest.mark.parametrize("kind", ["scores", "probabilities"])
def test_cross_entropy_of_one_output(kind):
    outputs = LOGITS if kind == "scores" else CHANCES
    problem = {"name": "classification", "outputs": kind}
    found = measured(["cross_entropy"], outputs, loss="binary_cross_entropy", problem=problem)
    wanted = metrics.log_loss(LABELS, CHANCES)
    assert found["cross_entropy"] == pytest.approx(wanted, rel=1e-9)
    assert found["loss"] == pytest.approx(wanted, rel=1e-9)


def test_nll_needs_an_output_for_each_class():
    with pytest.raises(UserError, match=r"^nll needs one output for each class.*binary_cross_entropy"):
        measured(["nll"], LOGITS, loss="binary_cross_entropy")
