"""Curves of saved predictions, and precision, recall and F1 of each class, by hand from small arrays."""

import math

import numpy as np
from helpers.synthetic_runs import change_json

from nnlo_lib.report.sections import predictions
from nnlo_lib.report.sections.predictions import confusion_matrices, prediction_figures
from nnlo_lib.report.tables import load_jobs

SHARES = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.55, 0.45]])


def figures(fake):
    return {figure.title: figure for figure in prediction_figures(load_jobs(fake.folders))}


def points(figure, job=-1):
    columns = figure.spec["data"]["columns"]
    rows = zip(*(columns[name] for name in ("run", "x", "y", "job")), strict=True)
    return [row[:3] for row in rows if row[3] == job]


def test_curves_of_each_seed_and_of_all(fake, monkeypatch):
    """The sample of class 1 with the score 0.4 is below one of class 0 with 0.45: half of the pairs are right."""
    monkeypatch.setattr(predictions, "MIN_BIN", 1)
    for seed in (1, 2):
        folder = fake.job("first", seed, classes=2)
        change_json(folder / "evaluation.json", classes=["no", "yes"])
        fake.predictions(folder, SHARES if seed == 1 else 1 - SHARES, [0, 1, 1, 0])
    fake.job("unsaved", classes=2)
    found = figures(fake)
    assert list(found) == ["ROC curve", "Calibration"]
    curve = found["ROC curve"]
    assert points(curve, 0)[:2] == [(0, 0.0, 0.0), (0, 0.0, 0.5)]
    assert points(curve, 0)[-1] == (0, 1.0, 1.0)
    # Of the four pairs, the first seed orders 3 and the second one 1: areas of 0.75 and 0.25.
    assert curve.rows[0] == ["area", "0.50\u00a0±\u00a00.35"]
    assert curve.note.startswith("of class yes")
    # Confidences 0.9, 0.6 (wrong), 0.7, 0.55 in bins of 1/15; 0.6 begins the tenth. The other seed is right and wrong
    # the other way around.
    expected = {0.55: 1.0, 0.6: 0.0, 0.7: 1.0, 0.9: 1.0}
    calibration = found["Calibration"]
    assert {x: y for _, x, y in points(calibration, 0)} == expected
    assert {x: 1 - y for _, x, y in points(calibration, 1)} == expected
    assert {y for _, _, y in points(calibration)} == {0.5}
    assert calibration.spec["data"]["columns"]["samples"] == [2] * 4 + [1] * 8
    # The seeds have the same samples.
    assert [row[-1] for row in calibration.rows] == ["1"] * 4


def test_each_output_of_a_regression_has_a_figure(fake):
    targets = np.arange(6.0).reshape(3, 2)
    fake.predictions(fake.job("two", accuracy=False), targets + 0.5, targets, "value")
    found = figures(fake)
    assert list(found) == [f"Predicted against true values, output {place} of 2" for place in (1, 2)]
    assert points(list(found.values())[1]) == [(0, 1.0, 1.5), (0, 3.0, 3.5), (0, 5.0, 5.5)]


def test_outputs_that_are_no_numbers_are_not_drawn(fake):
    fake.predictions(fake.job("nan", classes=2), [[math.nan, 1]] * 4, [0, 1, 1, 0])
    assert not figures(fake)


def test_scores_have_no_calibration(fake):
    fake.predictions(fake.job("hinge", classes=2), SHARES, [0, 1, 1, 0], "score")
    assert list(figures(fake)) == ["ROC curve"]


def test_precision_recall_and_f1_of_each_class(fake):

    for seed in (1, 2):
        folder = fake.job(seed=seed, classes=3)
        change_json(folder / "evaluation.json", confusion=[[6, 2, 0], [3, 9, 0], [0, 0, 0]])
    (matrix,) = confusion_matrices(load_jobs(fake.folders))
    assert (matrix.tasks, matrix.counts[0, 0]) == (2, 12)
    rows = [[text.replace("\u00a0", " ") for text in row] for row in matrix.by_class()]
    assert rows == [
        ["0", "66.7 %", "75.0 %", "70.6 %", "8"],
        ["1", "81.8 %", "75.0 %", "78.3 %", "12"],
        ["2", "0 %", "0 %", "0 %", "0"],
        ["mean over classes", "49.5 %", "50.0 %", "49.6 %", "20"],
    ]
