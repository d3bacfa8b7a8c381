"""Metrics of all samples together, equal to their definitions as sums over pairs, ranks and bins."""

import math
import re

import numpy as np
import pytest
from pydantic import ValidationError

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.set_metrics import FALSE_POSITIVE_RATES, reliability, roc_curve, set_metric


def drawn(classes, samples=60, seed=0):
    """Return probabilities with ties, of which the last class has no sample, and labels."""
    rng = np.random.default_rng(seed)
    outputs = rng.dirichlet(np.ones(classes), samples).round(1) + 0.01
    labels = rng.integers(0, max(2, classes - 1), samples)
    return (outputs / outputs.sum(1, keepdims=True)).astype(np.float32), labels


def parts(outputs, labels):
    """Return scores of positive and of negative samples: of class 1 of two, or of each class with samples."""
    classes = [1] if outputs.shape[1] == 2 else sorted(set(labels))
    return [(outputs[labels == k, k], outputs[labels != k, k]) for k in classes]


def area_by_pairs(outputs, labels):
    """A random positive sample has the higher score than a random negative one; equal scores count half."""
    wins = [np.sign(right[:, None] - wrong).mean() / 2 + 0.5 for right, wrong in parts(outputs, labels)]
    return np.mean(wins)


def precision_by_thresholds(outputs, labels):
    areas = []
    for right, wrong in parts(outputs, labels):
        recall, area = 0.0, 0.0
        for least in sorted({*right, *wrong}, reverse=True):
            hits, others = (right >= least).sum(), (wrong >= least).sum()
            area += (hits / len(right) - recall) * hits / (hits + others)
            recall = hits / len(right)
        areas.append(area)
    return np.mean(areas)


def f1_by_counts(outputs, labels):
    chosen = outputs.argmax(1)
    known = sorted({*labels, *chosen})
    return np.mean(
        [
            2 * ((chosen == k) & (labels == k)).sum() / ((chosen == k).sum() + (labels == k).sum())
            for k in known
        ]
    )


def calibration_by_bins(outputs, labels):
    gaps = 0.0
    for low in range(15):
        inside = [i for i in range(len(labels)) if low / 15 <= outputs[i].max() < (low + 1) / 15]
        gaps += abs(sum(float(outputs[i].max()) - (outputs[i].argmax() == labels[i]) for i in inside))
    return gaps / len(labels)


ORACLES = {
    "roc_auc": area_by_pairs,
    "average_precision": precision_by_thresholds,
    "f1": f1_by_counts,
    "calibration_error": calibration_by_bins,
}


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", ORACLES)
def test_metrics_of_classes_follow_their_definitions(name, classes):
    outputs, labels = drawn(classes)
    found = set_metric(name, outputs, labels, outputs.argmax(1))
    assert found == pytest.approx(ORACLES[name](outputs, labels), rel=1e-6)


def test_a_single_score_is_that_of_class_1():
    outputs, labels = drawn(2)
    assert set_metric("roc_auc", outputs[:, 1:], labels, None) == pytest.approx(
        area_by_pairs(outputs, labels)
    )


def test_r2_is_the_mean_over_outputs_of_the_explained_variance():
    rng = np.random.default_rng(1)
    targets = rng.normal(size=(50, 2))
    outputs = targets + rng.normal(size=(50, 2))
    explained = 1 - ((outputs - targets) ** 2).sum(0) / ((targets - targets.mean(0)) ** 2).sum(0)
    assert set_metric("r2", outputs, targets, None) == pytest.approx(explained.mean())


def test_r2_of_targets_that_do_not_vary_is_undefined():
    """The total sum of squares is 0; scikit-learn returns 0, or 1 for the right constant."""
    targets, outputs = np.full((20, 2), 3.0), np.random.default_rng(1).normal(size=(20, 2))
    assert np.isnan(set_metric("r2", outputs, targets, None))
    assert np.isnan(set_metric("r2", outputs[:1], outputs[:1], None))
    targets[:, 1] = outputs[:, 1] + 0.1
    total = ((outputs[:, 1] - outputs[:, 1].mean()) ** 2).sum()
    assert set_metric("r2", outputs, targets, None) == pytest.approx(1 - 20 * 0.01 / total)


@pytest.mark.parametrize("name", ORACLES)
def test_outputs_that_are_not_finite_have_no_metric(name):
    outputs, labels = drawn(3)
    outputs[7, 1] = np.nan
    assert math.isnan(set_metric(name, outputs, labels, outputs.argmax(1)))


def test_samples_of_one_class_have_no_area():
    outputs, _ = drawn(2)
    assert math.isnan(set_metric("roc_auc", outputs, np.zeros(len(outputs), int), None))


def test_the_curves_have_the_corners_and_the_area_of_their_metrics():
    outputs, labels = drawn(2, 2000)
    curve = roc_curve(outputs, labels)
    assert (curve[0], curve[-1]) == (0, 1)
    assert np.trapezoid(curve, FALSE_POSITIVE_RATES) == pytest.approx(
        area_by_pairs(outputs, labels), abs=0.01
    )
    confidence, accuracy, counts = reliability(outputs, labels)
    assert counts.sum() == 2000
    assert counts @ accuracy == pytest.approx((outputs.argmax(1) == labels).sum())
    assert counts @ confidence == pytest.approx(outputs.max(1).sum())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return outputs.sum()", None),
        ("return outputs[:, 0]", "mine.py:f returned ndarray; it must return one number for all samples"),
        ("return outputs / labels", r"mine.py:f\(outputs, targets\) failed: .*mine.py"),
    ],
)
def test_a_function_of_the_user_returns_one_number(tmp_path, monkeypatch, body, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(f"def f(outputs, targets):\n    {body}\n")
    outputs, labels = drawn(2)
    if said is None:
        assert set_metric("set:mine.py:f", outputs, labels, None) == float(outputs.sum())
        run = Run.model_validate({"metrics": ["accuracy", "set:mine.py:f"]})
        assert (run.measured, run.evaluated) == (("loss", "accuracy"), {"loss", "accuracy", "f"})
        assert run.input_files == ("mine.py",)
    else:
        with pytest.raises(UserError, match=said):
            set_metric("set:mine.py:f", outputs, labels, None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics": ["roc_auk"]}, "unknown name 'roc_auk'; did you mean 'roc_auc'"),
        ({"metrics": ["r2"]}, "'r2' is only available for regression"),
        ({"metrics": ["f1@side"]}, "'f1@side' is of all samples together, of the first output; remove @side"),
        ({"metrics": ["auc", "roc_auc"]}, "two columns of the history would have the name 'roc_auc'"),
        ({"problem": "regression", "metrics": ["auc"]}, "'roc_auc' is only available for classification; for regression"),
        ({"problem": "regression", "metrics": ["balanced_accuracy"]}, "only available for classification or dense"),
        ({"problem": "gan", "metrics": ["set:mine.py:f"]}, "only classification and regression have such metrics"),
        ({"metrics": ["set:missing.py:f"]}, "missing.py"),
        ({"metrics": ["calibration_error"], "loss": "hinge"}, "needs probabilities, which the loss hinge does not give"),
        (
            {"metrics": ["f1"], "train": {"restore_best": "val_f1"}},
            "'val_f1' is not measured in an epoch: it is of all samples together; choose one of: loss",
        ),
        ({"metrics": ["f1"], "checkpoint": {"best": "val_f1"}}, "of all samples together; choose one of: loss"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(settings, said):
    with pytest.raises(ValidationError, match=re.escape(said)):
        Run.model_validate(settings)
