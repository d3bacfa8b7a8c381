"""Class weights and balanced accuracies: values of scikit-learn, losses of torch, and one gradient for any number of ranks."""

import numpy as np
import pytest
import torch
from helpers.training_here import digits
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn import functional

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.targets import class_weights
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.task import Task

YES = ["no", "yes", "n/a"]
PLACES = {"name": "dense_classification", "classes": 5, "ignore_index": 255}


def run_of(wanted, **settings):
    return Run.model_validate({"problem": {"class_weights": wanted, **settings}})


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.random.default_rng(0).choice([0, 2], 60, p=[0.9, 0.1])
    weights = class_weights(run_of("balanced"), YES, labels)
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=labels)
    np.testing.assert_array_equal(weights, [expected[0], 1, expected[1]])
    assert weights[labels].mean() == pytest.approx(1)


def test_places_that_are_ignored_do_not_count():
    labels = np.array([[0, 0, 1, 255], [0, 3, 255, 255]])
    weights = class_weights(run_of("balanced", **PLACES), [], labels)
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=np.array([0, 0, 1, 0, 3]))
    np.testing.assert_array_equal(weights[[0, 1, 3]], expected)
    assert weights[[2, 4]].tolist() == [1, 1]
    # A class may be what is ignored.
    weights = class_weights(run_of("balanced", **PLACES | {"ignore_index": 0}), [], labels)
    assert weights[[0, 1, 3]].tolist() == [1, 1, 1]
    np.testing.assert_array_equal(class_weights(run_of({"4": 9}, **PLACES), []), [1, 1, 1, 1, 9])


def test_weights_by_name():
    assert class_weights(run_of(None), YES) is None
    np.testing.assert_array_equal(class_weights(run_of({"yes": 10, "n/a": 0}), YES), [1, 10, 0])
    message = r"problem.class_weights: no class 'yess'; did you mean 'yes'\? \(the classes are no, yes, n/a\)"
    with pytest.raises(UserError, match=message):
        class_weights(run_of({"yess": 10}), YES)
    with pytest.raises(UserError, match="the labels of digits are no classes; remove this key"):
        class_weights(run_of("balanced"), [])


@pytest.mark.parametrize("fold", [None, 0, 2])
def test_weights_are_of_the_training_samples_of_the_fold(tmp_path, fold):
    """Of all workers together; a worker of `by_class` has few classes."""
    settings = {"data": {"partition": {"name": "by_class"}, "stratify": False}, "parallel": {"ranks": 3}}
    run = Run.model_validate({"problem": {"class_weights": "balanced"}, **settings})
    data = TrainingData(Task("t", "r", run, 7, fold, 3, digits(), tmp_path), 3)
    labels = data.split.labels[np.concatenate(data.worker_samples)]
    expected = compute_class_weight("balanced", classes=np.arange(10), y=labels)
    np.testing.assert_array_equal(data.class_weights, expected)
    all_labels = Split(DataManifest.load(digits()), "train").labels
    assert not np.allclose(expected, compute_class_weight("balanced", classes=np.arange(10), y=all_labels))


@pytest.mark.parametrize("name", ["classification", "dense_classification"])
def test_the_loss_is_the_weighted_sum_of_torch_over_the_samples(name):
    """Of samples or places. The losses of uneven parts, weighted by their samples, have the gradient of the whole."""
    draw, weights = torch.Generator().manual_seed(1), torch.tensor([1, 10, 0.5, 2, 1]).double()
    shape = (12, 7) if name == "dense_classification" else (12,)
    labels = torch.randint(5, shape, generator=draw)
    scores = torch.randn(12, 5, *shape[1:], generator=draw).double().requires_grad_()
    if name == "dense_classification":
        labels[0, 2:] = labels[3] = 255
    settings = PLACES if name == "dense_classification" else {"name": name}
    problem = build_problem(Run.model_validate({"problem": settings}), 5, weights.numpy())

    def expected(part):
        sums = functional.cross_entropy(
            scores[part], labels[part], weights, reduction="none", ignore_index=255
        )
        counts = (labels[part] != 255).reshape(len(labels[part]), -1).sum(1).clamp(min=1)
        return (sums.reshape(len(counts), -1).sum(1) / counts).mean()

    loss, sums = problem.compute_loss(nn.Identity(), (scores,), labels, 0)
    torch.testing.assert_close(loss, expected(slice(None)), rtol=1e-12, atol=0)
    assert problem.means(sums())["loss"] == pytest.approx(loss.item(), rel=1e-12)
    parts = [slice(0, 1), slice(1, 8), slice(8, 12)]
    whole = sum(
        problem.compute_loss(nn.Identity(), (scores[part],), labels[part], 0).loss * len(labels[part]) / 12
        for part in parts
    )
    gradients = [torch.autograd.grad(each, scores)[0] for each in (whole, expected(slice(None)))]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-15)
    # What is validated has no weights.
    plain = build_problem(Run.model_validate({"problem": settings}), 5)
    measured = [each.measure(nn.Identity(), (scores,), labels) for each in (problem, plain)]
    torch.testing.assert_close(*measured, rtol=0, atol=0)


def test_a_balanced_accuracy_has_no_values_of_single_samples():
    run = Run.model_validate({"metrics": ["balanced_accuracy", "accuracy", "balanced_accuracy@1"]})
    problem = build_problem(run, 3)
    outputs, labels = (torch.eye(3)[[0, 1, 1, 2]], torch.eye(3)[[0, 0, 1, 2]]), torch.tensor([0, 0, 0, 2])
    assert problem.names == ("loss", "balanced_accuracy", "accuracy", "1_balanced_accuracy")
    assert (problem.sample_names, len(problem.values_of_outputs(outputs, labels))) == (
        ("loss", "accuracy"),
        2,
    )
    means = problem.means(problem.sums_of_outputs(outputs, labels))
    assert [means[name] for name in problem.names[1:]] == pytest.approx(
        [(1 / 3 + 1) / 2, 0.5, (2 / 3 + 1) / 2]
    )
    with pytest.raises(UserError, match="balanced_accuracy needs one class for each sample"):
        problem.sums_of_outputs((outputs[0], outputs[0]), outputs[0])
