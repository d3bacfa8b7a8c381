"""The page of a regression equals what its raw files say: two losses, two seeds, two folds, validations within epochs."""

import numpy as np
import pytest
from helpers.recomputation.dense import held_back, outputs, samples, trained_on
from helpers.recomputation.experiment import audited_experiment
from helpers.recomputation.page_tests import ExperimentPageTests

# The first test of the module makes the experiment.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]

SETTINGS = {
    "name": "diabetes",
    "data": {"dataset": "diabetes", "normalize": "standard"},
    "model": {"name": "perceptron", "args": {"hidden": [8]}},
    "problem": "regression",
    "loss": "mse",
    "metrics": ["mae"],
    "train": {
        "epochs": 5,
        "batch_size": 20,
        "optimizer": {"name": "adam", "lr": 0.1},
        "validate_every": 4,
        "evaluate_before": True,
    },
    "parallel": {"ranks": 1},
    "seeds": [1, 2],
    "folds": 2,
    "runs": {
        "squares": {},
        "huber": {
            "problem": {"name": "regression", "huber_delta": 50},
            "loss": "huber",
            "metrics": ["mae", "mse"],
        },
    },
}
FLOAT32 = 2e-5  # relative error of sums in single precision


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return audited_experiment(tmp_path_factory.mktemp("regression"), SETTINGS)


class TestPage(ExperimentPageTests):
    """The page equals its raw files."""


def huber(errors):
    size = np.abs(errors)
    return np.where(size <= 50, errors**2 / 2, 50 * (size - 25)).mean()


METRICS = {
    "mse": lambda errors: (errors**2).mean(),
    "mae": lambda errors: np.abs(errors).mean(),
    "huber": huber,
}


def errors_of(job, features, labels):
    train, _ = trained_on(job)
    scores = outputs(job, (features - train.mean(0)) / train.std(0))
    return scores[:, 0] - labels


def test_evaluations_equal_those_of_a_plain_perceptron(page):
    for job in page.raw.jobs:
        errors = errors_of(job, *samples(job, "test"))
        config = job.summary["config"]
        assert job.evaluation["loss"] == pytest.approx(METRICS[config["loss"]](errors), rel=FLOAT32)
        for name in config["metrics"]:
            assert job.evaluation[name] == pytest.approx(METRICS[name](errors), rel=FLOAT32)


def test_the_last_validation_is_that_of_the_published_model(page):
    for job in page.raw.jobs:
        errors = errors_of(job, *held_back(job))
        assert job.history[-1]["val_mae"] == pytest.approx(METRICS["mae"](errors), rel=FLOAT32)


def test_the_experiment_has_what_it_is_for(page):
    assert {row["pairs_are"] for row in page.raw.table("comparisons.csv")} == {"folds"}
