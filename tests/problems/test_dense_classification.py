"""Tokens and pixels: loss and metrics over uneven batches of several ranks, equal to torch and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import nn
from torch.nn import functional

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.metrics import METRICS, metric_direction
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.problems.base import build_problem

CLASSES, RANKS, IGNORED = 5, 3, 255
PARTS = [1, 4, 2]  # samples of a rank's batches; the last batch has the rest


def problem_of(**settings):
    problem = {"name": "dense_classification", "classes": CLASSES, "ignore_index": IGNORED, **settings}
    return build_problem(Run.model_validate({"problem": problem, "metrics": METRICS["dense_classification"]}))


def drawn(seed, shape, ignored=0.3, classes=CLASSES):
    """Return scores (samples, classes, places ...) and labels; the last class has no place, class 0 is frequent."""
    draw = np.random.default_rng(seed)
    labels = draw.choice(classes - 1, shape, p=[0.6, 0.2, 0.1, 0.1])
    labels[draw.random(shape) < ignored] = IGNORED
    scores = draw.normal(size=(shape[0], classes, *shape[1:]))
    # The last class is never predicted either, so that it does not count for the means over classes.
    scores[:, -1] -= 99
    return torch.tensor(scores), torch.tensor(labels)


def expected(scores, labels):
    """Return the metrics of all counted places by torch and scikit-learn."""
    counted = labels != IGNORED
    truth, guess = labels[counted].numpy(), scores.argmax(1)[counted].numpy()
    entropy = functional.cross_entropy(scores, labels, ignore_index=IGNORED).item()
    present = sorted({*truth, *guess})
    return {
        "accuracy": metrics.accuracy_score(truth, guess),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, guess),
        "cross_entropy": entropy,
        "perplexity": np.exp(entropy),
        "iou": metrics.jaccard_score(truth, guess, labels=present, average="macro"),
        "dice": metrics.f1_score(truth, guess, labels=present, average="macro"),
    }


def streamed(problem, scores, labels):
    """Return the means as the ranks of a validation compute them: sums of uneven batches, added up over ranks."""

    def program(comm):
        sums = torch.zeros(problem.sums_size, dtype=torch.float64)
        mine = np.arange(len(labels))[comm.rank :: comm.size]
        for part in np.split(mine, np.cumsum(PARTS)):
            if len(part):
                sums += problem.measure(nn.Identity(), (scores[part],), labels[part])
        comm.allreduce(sums, "metrics")
        return problem.means(sums)

    first, *others = SimulatedWorld(RANKS).run(program)
    assert all(each == first for each in others)
    return first


@pytest.mark.parametrize("shape", [(23, 7), (23, 4, 3)], ids=["tokens", "pixels"])
@pytest.mark.parametrize("seed", range(3))
def test_metrics_are_those_of_all_places_together(shape, seed):
    scores, labels = drawn(seed, shape)
    found = streamed(problem_of(), scores, labels)
    named = {name: found[name] for name in METRICS["dense_classification"]}
    assert named == pytest.approx(expected(scores, labels), rel=1e-12)
    # The means of the ratios of batches differ, so that the comparison above could fail.
    parts = [expected(scores[part], labels[part]) for part in (slice(5), slice(5, 23))]
    assert np.mean([part["iou"] for part in parts]) != pytest.approx(found["iou"], rel=1e-3)


def test_the_loss_is_the_mean_over_samples_and_its_gradient_that_of_torch():
    scores, labels = drawn(0, (6, 7))
    labels[2] = IGNORED  # a sample without any counted place
    scores.requires_grad_()
    others = [n for n in range(6) if n != 2]
    wanted = sum(functional.cross_entropy(scores[[n]], labels[[n]], ignore_index=IGNORED) for n in others) / 6
    batch = problem_of().compute_loss(nn.Identity(), (scores,), labels, 0)
    torch.testing.assert_close(batch.loss, wanted, rtol=1e-12, atol=0)
    found, gradient = (torch.autograd.grad(loss, scores)[0] for loss in (batch.loss, wanted))
    torch.testing.assert_close(found, gradient, rtol=1e-12, atol=1e-15)
    assert problem_of().means(batch.sums())["loss"] == pytest.approx(wanted.item(), rel=1e-12)


def test_classes_may_be_the_last_axis():
    scores, labels = drawn(1, (9, 4, 3))
    first, last = problem_of(), problem_of(class_axis="last")
    same = [
        problem.measure(nn.Identity(), (each,), labels)
        for problem, each in ((first, scores), (last, scores.movedim(1, -1)))
    ]
    torch.testing.assert_close(*same, rtol=0, atol=0)


def test_stacked_nodes_and_single_samples_have_their_own_metrics():
    scores, labels = drawn(2, (12, 7))
    problem = problem_of()
    rows = problem.sums_by_node(scores, labels, problem.losses(scores, labels), torch.tensor([4, 6]))
    for row, part in zip(rows, (slice(4), slice(6, 12)), strict=True):
        found = problem.means(row)
        found.pop("loss")
        assert found == pytest.approx(expected(scores[part], labels[part]), rel=1e-12)
    values = problem.values_of_outputs(scores, labels)
    assert values.shape == (len(problem.names), 12)
    for sample in range(12):
        wanted = [*expected(scores[[sample]], labels[[sample]]).values()]
        np.testing.assert_allclose(values[1:, sample], wanted, rtol=1e-5)


def test_a_place_with_nan_is_wrong():
    scores, labels = drawn(3, (4, 5), ignored=0)
    scores[0, 2, 0] = float("nan")
    found = problem_of().means(problem_of().measure(nn.Identity(), (scores,), labels))
    right = scores.argmax(1) == labels
    right[0, 0] = False
    assert found["accuracy"] == right.double().mean()


def test_directions():
    larger = [name for name in METRICS["dense_classification"] if metric_direction(f"val_{name}") == "larger"]
    assert {*larger} == {"accuracy", "balanced_accuracy", "iou", "dice"}


@pytest.mark.parametrize(
    ("shape", "label", "said"),
    [
        (
            (2, 4, 3),
            0,
            r"scores of shape \(2, 5, 3\) for labels of shape \(2, 3\), but the model returns \(2, 4, 3\)",
        ),
        ((2, 5, 3), 7, r"problem.classes: label 7 is not one of the 5 classes from 0, and not .* \(255\)"),
    ],
)
def test_outputs_and_labels_that_do_not_fit_are_refused(shape, label, said):
    with pytest.raises(UserError, match=said):
        problem_of().measure(nn.Identity(), (torch.zeros(shape),), torch.full((2, 3), label))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("loss: {a: cross_entropy}", "one output; remove `loss`"),
        ("metrics: [accuracy@side]", "metrics.0: dense_classification measures one output"),
        ("metrics: [top5_accuracy]", "metrics.0: 'top5_accuracy' is only available for classification"),
    ],
)
def test_settings_without_an_effect_are_refused(tmp_path, settings, said):
    path = tmp_path / "x.yaml"
    path.write_text(f"name: x\nproblem: {{name: dense_classification, classes: 5}}\n{settings}\n")
    with pytest.raises(UserError, match=said):
        load_experiment(path)
