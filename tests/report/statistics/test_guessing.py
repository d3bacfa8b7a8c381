"""Trainings that end at guessing level are named: on the last line of the training and on the page."""

import numpy as np
import pytest
from helpers.html_page import check
from helpers.nnlo_command import nnlo
from helpers.synthetic_runs import change_json
from helpers.training_here import attempt_here
from helpers.training_process import training

from nnlo_lib.report.statistics.run_comparison import guessing_sentence
from nnlo_lib.report.tables import load_jobs
from nnlo_lib.state.finished_run import guessing_level


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
    level = guessing_level(evaluation(TRUTH, guesses))
    assert level == (np.bincount(TRUTH).max() / 355 if is_guessing else None)


def test_without_classes_there_is_no_level():
    assert guessing_level({"loss": 1.0, "samples": 3}) is None
    assert guessing_level({"accuracy": 0.1, "samples": 3}) is None


def test_the_page_names_them(fake, report):
    fake.job("good")
    change_json(fake.job("bad", seed=2) / "evaluation.json", **evaluation(TRUTH, np.full(355, 3)))
    said = guessing_sentence(load_jobs(fake.folders))
    assert said.startswith(
        "At guessing level, not better than always naming the most frequent class: bad seed 2 ("
    )
    assert "good" not in said
    assert "At guessing level" in check(report(fake)).text


def test_the_last_line_of_a_training_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("nnlo_lib.launch.attempt.train_task", lambda task, options: attempt_here(task))
    for rate, named in ((1e-6, True), (0.02, False)):
        train = {"epochs": 1, "optimizer": {"name": "sgd", "lr": rate, "momentum": 0.9 * (not named)}}
        run = training(tmp_path / str(rate), train=train, parallel={"ranks": 1, "transport": "simulated"})
        said = nnlo("run", "t.yaml", folder=run.folder).stderr
        assert ("warning: guessing level: " in said.strip().splitlines()[-1]) == named, said
