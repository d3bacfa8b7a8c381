"""Trainings that end at guessing level are named: on the last line of the training and on the page."""

import re

import numpy as np
import pytest
from helpers.html_page import check
from helpers.nnlo_command import nnlo
from helpers.synthetic_runs import change_json
from helpers.training_here import attempt_here
from helpers.training_process import training

from nnlo_lib.problems.set_metrics import guessing
from nnlo_lib.report.statistics.run_comparison import guessing_sentence
from nnlo_lib.report.tables import load_jobs


def evaluation(truth, guesses):
    """Return the content of evaluation.json for true and predicted classes."""
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (truth, guesses), 1)
    return {"accuracy": float(np.mean(truth == guesses)), "confusion": confusion.tolist()}


DRAWS = np.random.default_rng(1)
TRUTH = DRAWS.integers(10, size=355)


@pytest.mark.parametrize(
    ("guesses", "is_guessing"),
    [
        (np.full(355, np.bincount(TRUTH).argmax()), True),
        (np.full(355, 3), True),
        (DRAWS.integers(10, size=355), True),
        (np.where(DRAWS.random(355) < 0.2, TRUTH, 0), False),
        (TRUTH, False),
    ],
    ids=["most frequent", "another class", "random", "a little better", "right"],
)
def test_guessing_level(guesses, is_guessing):
    level = guessing(evaluation(TRUTH, guesses), dict)
    assert (level is not None) == is_guessing
    assert level is None or (level.chance == 0.1 and level.roc_auc is None)


def test_without_classes_there_is_no_level():
    assert guessing({"loss": 1.0, "samples": 3}, dict) is None
    assert guessing({"accuracy": 0.1, "samples": 3}, dict) is None
    assert guessing({"accuracy": 1.0, "confusion": [[9, 0], [0, 0]]}, dict) is None


@pytest.mark.parametrize(
    ("outputs", "is_guessing"),
    [(np.full(200, 5.0), True), (DRAWS.normal(0, 3, 200), True), (np.arange(200) / 100, False)],
    ids=["a constant", "random", "a trend"],
)
def test_numbers_no_better_than_their_mean(outputs, is_guessing):
    targets = np.arange(200) / 50 + DRAWS.normal(0, 0.1, 200)
    arrays = {"outputs": outputs[:, None], "targets": targets[:, None]}
    level = guessing({"loss": 1.0, "predictions": "value"}, lambda: arrays)
    assert (level is not None) == is_guessing
    errors = (targets - outputs) ** 2
    assert level is None or level.r2 == pytest.approx(1 - errors.mean() / targets.var(), abs=1e-5)
    for other in (
        {"targets": np.ones((200, 1))},
        {"outputs": np.ones((200, 2))},
        {"targets": np.ones((0, 1))},
    ):
        assert guessing({"predictions": "value"}, lambda other=other: arrays | other) is None
    assert guessing({"predictions": "value"}, dict) is None


RARE = np.arange(1000) < 80  # 8 % positive samples


def rare(guesses, scores=None):
    """Return the judgment of guesses, and scores of class 1, of a rare class."""
    confusion = [[int(((truth == RARE) & (guess == guesses)).sum()) for guess in (0, 1)] for truth in (0, 1)]
    outputs = {} if scores is None else {
        "outputs": np.stack([1 - scores, scores], 1), "targets": RARE.astype(int), "predicted": guesses.astype(int),
    }  # fmt: skip
    return guessing({"confusion": confusion, "accuracy": float((guesses == RARE).mean())}, lambda: outputs)


def test_a_rare_class_counts_like_a_frequent_one():
    """All negative is 92 % right and guessing; half of the positives found at the price of accuracy is not."""
    nothing = rare(np.zeros(1000, bool))
    assert (nothing.balanced_accuracy, nothing.chance, nothing.roc_auc) == (0.5, 0.5, None)
    assert "smaller learning rate" in nothing.remedy
    assert rare(np.arange(1000) < 3) is not None, "three of eighty are significant and of no use"
    found = (np.arange(1000) < 40) | (np.arange(1000) > 900)  # 86 % right
    assert rare(found) is None


def test_outputs_that_order_the_samples_are_no_guesses():
    """Each positive is above all but 70 negatives: the area is 1 - 70 / 920, though no output is above one half."""
    scores = np.where(RARE, 0.4, np.where(np.arange(1000) >= 930, 0.45, 0.1))
    level = rare(np.zeros(1000, bool), scores)
    assert level.roc_auc == pytest.approx(1 - 70 / 920)
    assert "smaller learning rate" not in level.remedy
    assert "threshold" in level.remedy
    assert rare(np.zeros(1000, bool), DRAWS.random(1000)).roc_auc is None


def test_the_page_names_them(fake, report):
    fake.job("good")
    change_json(fake.job("bad", seed=2) / "evaluation.json", **evaluation(TRUTH, np.full(355, 3)))
    said = guessing_sentence(load_jobs(fake.folders))
    assert said.startswith(
        "At guessing level, classes no better than always naming one: bad seed 2 (balanced accuracy 10.0% against 10.0%)"
    )
    assert "good" not in said
    assert re.search("fake *Warning: At guessing level", " ".join(check(report(fake)).text.split()))


def test_the_last_line_of_a_training_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("nnlo_lib.launch.attempt.train_task", lambda task, options: attempt_here(task))
    for rate, named in ((1e-6, True), (0.02, False)):
        train = {"epochs": 1, "optimizer": {"name": "sgd", "lr": rate, "momentum": 0.9 * (not named)}}
        run = training(tmp_path / str(rate), train=train, parallel={"ranks": 1, "transport": "simulated"})
        said = nnlo("run", "t.yaml", folder=run.folder).stderr
        assert ("warning: At guessing level, " in said.strip().splitlines()[-1]) == named, said
