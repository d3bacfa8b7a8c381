"""A last activation that the loss applies again, or that turns every prediction into the positive class, is named."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from nnlo_lib.config import Experiment
from nnlo_lib.preflight.output_activation import activation_doubts

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def doubts(
    outputs, loss="binary_cross_entropy", problem="classification", metrics=("accuracy",), has_values=True
):
    text = {
        "data": {"dataset": "digits"},
        "model": {"name": "simplemlp"},
        "loss": loss,
        "problem": problem,
        "metrics": list(metrics),
    }
    run = Experiment.model_validate(text).variants["allreduce"]
    return list(activation_doubts(run, outputs, has_values))


def layer(outputs):
    torch.manual_seed(0)
    return nn.Linear(4, outputs)(X)


HALVES = torch.tensor([0.5])
WRONG = {
    "sigmoid": (layer(1).sigmoid(), "binary_cross_entropy", "sigmoid, which binary_cross_entropy applies itself"),
    "hard sigmoid": (functional.hardsigmoid(layer(1)), "binary_cross_entropy", "after sigmoid"),
    "several labels": (layer(3).sigmoid(), "binary_cross_entropy", "after sigmoid"),
    "heads": (torch.cat([layer(1).sigmoid(), layer(1).sigmoid()], 1), "binary_cross_entropy", "after sigmoid"),
    "bounded": (layer(1).sigmoid().clamp(1e-7, 1 - 1e-7), "binary_cross_entropy", "after sigmoid"),
    "moved": (layer(1).sigmoid().squeeze(1).unsqueeze(1), "binary_cross_entropy", "after sigmoid"),
    "one number of two classes": (layer(1).sigmoid(), "cross_entropy", "sigmoid, which cross_entropy applies itself"),
    "softmax": (layer(2).softmax(1), "cross_entropy", "sum to 1 as after softmax, which cross_entropy"),
    "shares": (layer(2).exp() / layer(2).exp().sum(1, keepdim=True), "cross_entropy", "as after softmax"),
    "softmax, nll": (layer(2).softmax(1), "nll", "as after softmax, but nll needs logarithms"),
    "scores, nll": (layer(2), "nll", "no logarithms of probabilities"),
    "hinge": (layer(1).sigmoid(), "hinge", "an output above 0 counts as positive"),
}  # fmt: skip
RIGHT = {
    "scores": (layer(1), "binary_cross_entropy"),
    "half by chance": (HALVES.expand(3, 1) + 0 * layer(1), "binary_cross_entropy"),
    "inner sigmoid": (nn.Linear(4, 1)(X.sigmoid() * layer(1).sigmoid()), "binary_cross_entropy"),
    "distances": (layer(1).sigmoid(), "mse"),
    "log-softmax": (layer(2).log_softmax(1), "nll"),
    "log-softmax, which cross_entropy leaves as it is": (layer(2).log_softmax(1), "cross_entropy"),
    "scores of classes": (layer(2), "cross_entropy"),
    "tanh": (layer(1).tanh(), "binary_cross_entropy"),
}


@pytest.mark.parametrize(("outputs", "loss", "words"), WRONG.values(), ids=WRONG)
def test_named(outputs, loss, words):
    [doubt] = doubts(outputs, loss)
    assert words in doubt


@pytest.mark.parametrize(("outputs", "loss"), RIGHT.values(), ids=RIGHT)
def test_no_warning(outputs, loss):
    assert doubts(outputs, loss) == []


def test_probabilities():
    """The option of the remedy ends the warning, and has its own opposite mistake."""
    problem = {"name": "classification", "outputs": "probabilities"}
    assert doubts(layer(1).sigmoid(), problem=problem) == []
    assert doubts(layer(2).softmax(1), "cross_entropy", problem) == []
    [doubt] = doubts(layer(1) - 5, problem=problem)
    assert "but `problem.outputs: probabilities` means 0 to 1" in doubt


def test_a_metric_that_applies_the_activation_again():
    [doubt] = doubts(layer(1).sigmoid(), "mse", metrics=["binary_cross_entropy"])
    assert "sigmoid, which binary_cross_entropy applies itself" in doubt


def test_regression():
    [doubt] = doubts(layer(2).sigmoid(), problem="regression", metrics=["mae"])
    assert "problem: {name: regression, outputs: probabilities}" in doubt


def test_each_output_has_its_loss():
    outputs = {"a": layer(2), "b": layer(1).sigmoid()}
    assert doubts(outputs, {"a": "cross_entropy", "b": "mse"}) == []
    assert len(doubts(outputs, {"a": "cross_entropy", "b": "binary_cross_entropy"})) == 1


def test_large_models_without_values():
    """On `meta` the activation is known, its values are not."""
    assert len(doubts(layer(1).to("meta").sigmoid(), has_values=False)) == 1
    assert doubts(layer(2).to("meta"), "nll", has_values=False) == []


def test_an_auxiliary_output_without_dimensions_is_no_score():
    outputs = {"scores": layer(2), "aux": layer(1).mean()}
    assert doubts(outputs, {"scores": "cross_entropy"}, metrics=["accuracy@scores"]) == []
