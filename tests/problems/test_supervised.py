"""Supervised problems: sums over batches and nodes, several outputs, and refused settings."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from nnlo_lib.config import Experiment, Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.supervised import SupervisedProblem

torch.manual_seed(5)
INPUTS, LABELS = torch.randn(30, 6), torch.randint(3, (30,))


class Twice(nn.Module):
    """Model with two outputs: a tuple, a mapping or, with `form=None`, the first output alone in evaluation.

    The last form corresponds to auxiliary classifiers.
    """

    def __init__(self, form=tuple):
        super().__init__()
        self.one, self.two, self.form = nn.Linear(6, 3), nn.Linear(6, 3), form

    def forward(self, inputs):
        both = self.one(inputs), self.two(inputs)
        if self.form is dict:
            return {"main": both[0], "side": both[1]}
        return both[0] if self.form is None and not self.training else both


def problem(**settings) -> SupervisedProblem:
    return build_problem(Run.model_validate(settings))


def measured(model, **settings):
    learned = problem(**settings)
    return learned.means(learned.measure(model, (INPUTS,), LABELS))


def test_means_of_metrics_and_of_no_samples():
    model, learned = nn.Linear(6, 3), problem(metrics=["accuracy", "top2_accuracy", "mse"])
    assert learned.names == ("loss", "accuracy", "top2_accuracy", "mse")
    sums, scores = learned.measure(model, (INPUTS,), LABELS), model(INPUTS)
    assert sums[0] == 30
    means = learned.means(sums)
    assert means["loss"] == pytest.approx(nn.functional.cross_entropy(scores, LABELS).item())
    assert means["accuracy"] == pytest.approx((scores.argmax(1) == LABELS).double().mean().item())
    assert torch.equal(learned.compute_loss(model, (INPUTS,), LABELS, 0).sums(), sums)
    assert learned.means(torch.zeros(5)) == {}


@pytest.mark.parametrize("form", [tuple, dict])
def test_one_loss_is_that_of_every_output(form):
    model = Twice(form)
    one, two = (nn.functional.cross_entropy(layer(INPUTS), LABELS).item() for layer in (model.one, model.two))
    assert measured(model)["loss"] == pytest.approx(one + two)
    side = "side" if form is dict else "1"
    assert measured(model, loss_weights={side: 0.3})["loss"] == pytest.approx(one + 0.3 * two)


def test_a_loss_for_each_output():
    model = Twice(dict)
    one = nn.functional.cross_entropy(model.one(INPUTS), LABELS).item()
    two = (model.two(INPUTS) - nn.functional.one_hot(LABELS, 3)).abs().mean().item()
    settings = {"loss": {"main": "cross_entropy", "side": "mae"}, "loss_weights": {"side": 2}}
    found = measured(model, metrics=["accuracy", "accuracy@side"], **settings)
    assert found["loss"] == pytest.approx(one + 2 * two)
    assert found["accuracy"] == pytest.approx((model.one(INPUTS).argmax(1) == LABELS).double().mean().item())
    assert found["side_accuracy"] == pytest.approx((model.two(INPUTS).argmax(1) == LABELS).double().mean().item())  # fmt: skip
    with pytest.raises(UserError, match="the model has none of the outputs left, right; it has main, side"):
        measured(model, loss={"left": "mse", "right": "mse"})
    with pytest.raises(UserError, match="accuracy@mian: the model has no output 'mian'; did you mean 'main'"):  # fmt: skip
        measured(model, metrics=["accuracy@mian"])


UNKNOWN = {
    "loss": (dict, {"loss": {"main": "cross_entropy", "sdie": "mae"}}, "loss: the model has no output 'sdie'; it has main, side"),
    "weight": (dict, {"loss_weights": {"sdie": 0.3}}, "loss_weights: the model has no output 'sdie'; it has main, side"),
    "weight of a tuple": (tuple, {"loss_weights": {"2": 0.3}}, "loss_weights: the model has no output '2'; it has 0, 1"),
}  # fmt: skip


@pytest.mark.parametrize(("form", "settings", "told"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_model_learns_all_outputs_that_are_named(form, settings, told):
    # Evaluation accepts unknown names, because some outputs exist in training only.
    measured(Twice(form), **settings)
    with pytest.raises(UserError, match=told):
        problem(**settings).compute_loss(Twice(form), (INPUTS,), LABELS, 0)


@pytest.mark.parametrize("settings", [{"loss": {"main": "mse"}}, {"loss_weights": {"side": 0.3}}])
def test_a_single_output_has_no_name(settings):
    with pytest.raises(UserError, match=r"the model has no output '(main|side)'; it has 0"):
        problem(**settings).compute_loss(nn.Linear(6, 3), (INPUTS,), LABELS, 0)


@pytest.mark.parametrize("loss", ["cross_entropy", {1: "mse", 0: "cross_entropy"}, {0: "cross_entropy", 1: "cross_entropy"}, {"a": "cross_entropy"}])  # fmt: skip
def test_auxiliary_outputs_count_while_training_only(loss):
    loss = {str(key): value for key, value in loss.items()} if isinstance(loss, dict) else loss
    model = Twice(None).eval()
    one = nn.functional.cross_entropy(model.one(INPUTS), LABELS).item()
    assert measured(model, loss=loss)["loss"] == pytest.approx(one)


def test_a_user_function_sees_all_outputs(tmp_path):
    text = "def apart(outputs, targets):\n    return (outputs['main'] - outputs['side']).square().sum(1)\n"
    (tmp_path / "mine.py").write_text(text)
    model = Twice(dict)
    found = measured(model, loss=f"{tmp_path}/mine.py:apart", metrics=[])
    assert found == {"loss": pytest.approx((model.one(INPUTS) - model.two(INPUTS)).square().sum(1).mean().item())}  # fmt: skip


def test_problems_have_losses_and_metrics_of_their_own():
    assert (Run().loss, Run().metrics) == ("cross_entropy", ("accuracy",))
    number = Run.model_validate({"problem": "regression", "loss": None})
    assert (number.problem.name, number.loss, number.metrics) == ("regression", "mse", ("mae",))
    assert number.model_validate(number.model_dump(mode="json")) == number
    assert number.hash == Run.model_validate({"problem": {"name": "regression"}, "loss": "mse"}).hash


def test_outputs_may_be_named_by_number(tmp_path):
    (tmp_path / "places.yaml").write_text("loss: {0: mse, 1: mae}\nloss_weights: {1: 0.3}\n")
    assert load_experiment(tmp_path / "places.yaml").loss_weights == {"1": 0.3}


def test_runs_with_another_problem_have_its_losses():
    runs = {"numbers": {"problem": "regression"}, "classes": {}}
    found = Experiment.model_validate({"runs": runs}).variants
    assert (found["numbers"].loss, found["classes"].loss) == ("mse", "cross_entropy")


REFUSED = {
    "accuracy of numbers": ({"problem": "regression", "metrics": ["accuracy"]}, "'accuracy' is only available for classification"),
    "top k of numbers": ({"problem": "regression", "metrics": ["top3_accuracy"]}, "unknown name 'top3_accuracy'"),
    "top nought": ({"metrics": ["top0_accuracy"]}, "unknown name 'top0_accuracy'"),
    "a metric of logarithms of probabilities": (
        {"problem": {"name": "classification", "outputs": "probabilities"}, "metrics": ["accuracy", "nll"]},
        "nll needs logarithms, but the outputs are probabilities",
    ),
    "no output": ({"loss": {}}, "the mapping is empty"),
    "best of nothing": ({"checkpoint": {"best": "mse"}}, "'val_mse' is not measured; .*; or add it to `metrics`"),
    "weights of a function": ({"loss": f"{__file__}:problem", "loss_weights": {"0": 2}}, "not supported with a loss function of all outputs"),
    "a second loss": ({"metrics": ["top3_accuracy", "top3_accuracy"]}, "two columns of the history would have the name"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "told"), REFUSED.values(), ids=REFUSED)
def test_refused(settings, told):
    with pytest.raises(ValidationError, match=told):
        Run.model_validate(settings)
