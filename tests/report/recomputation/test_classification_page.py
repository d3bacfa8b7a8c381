"""The page of a classification equals what its raw files say: four runs, three seeds, killed and missing trainings."""

import pytest
from helpers.recomputation.dense import accuracy, confusion, cross_entropy, held_back, outputs, samples
from helpers.recomputation.experiment import audited_experiment
from helpers.recomputation.page_tests import ExperimentPageTests

# The first test of the module makes the experiment.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]

SETTINGS = {
    "name": "digits",
    "data": {"dataset": "digits", "validation": 0.2},
    "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}},
    "train": {"epochs": 4, "batch_size": 50, "optimizer": {"name": "sgd", "lr": 0.1}},
    "checkpoint": {"every": "1 epoch"},
    "observe": {"monitor": True},
    "seeds": [1, 2, 3],
    "runs": {
        "allreduce": {"parallel": {"ranks": 2}},
        "stopped": {
            "algorithm": {"name": "downpour"},
            "parallel": {"ranks": 3},
            "train": {
                "epochs": 12,
                "optimizer": {"lr": 0.5},
                "early_stopping": {"metric": "val_loss", "patience": 1},
                "restore_best": "val_loss",
            },
        },
        "simulated": {"algorithm": {"name": "easgd"}, "parallel": {"ranks": 4, "transport": "simulated"}},
        # One training of three: the other runs share a single seed with this run, which is not tested.
        "single": {"parallel": {"ranks": 1}, "train": {"optimizer": {"lr": 0.3}}},
    },
}
FLOAT32 = 2e-6  # relative error of sums in single precision
SCALE = 1 / 16  # of a stored byte


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return audited_experiment(
        tmp_path_factory.mktemp("classification"),
        SETTINGS,
        killed=("allreduce", 2, 30),
        failed=("single", 1, 30),
        absent=[("single", 3)],
    )


class TestPage(ExperimentPageTests):
    """The page equals its raw files."""


def test_the_experiment_has_what_it_is_for(page):
    runs = page.raw.runs
    assert any(job.summary["ended_early"] for job in runs["stopped"])
    assert [len(job.attempts) for job in runs["allreduce"]] == [1, 2, 1]
    kinds = {row["pairs_are"] for row in page.raw.table("comparisons.csv")}
    assert kinds == {"seeds"}


def test_sample_metrics_equal_those_of_a_plain_perceptron(page):
    for job in page.raw.jobs:
        features, labels = samples(job, "test")
        correct = outputs(job, SCALE * features).argmax(1) == labels
        assert (job.sample_metrics["accuracy"] == correct).all()


def test_evaluations_equal_those_of_a_plain_perceptron(page):
    for job in page.raw.jobs:
        features, labels = samples(job, "test")
        scores = outputs(job, SCALE * features)
        assert job.evaluation["samples"] == len(labels)
        assert job.evaluation["loss"] == pytest.approx(cross_entropy(scores, labels), rel=FLOAT32)
        assert job.evaluation["accuracy"] == accuracy(scores, labels)
        assert job.evaluation["confusion"] == confusion(scores, labels)


def test_the_published_model_is_that_of_the_best_or_the_last_epoch(page):
    for job in page.raw.jobs:
        features, labels = held_back(job)
        loss = cross_entropy(outputs(job, SCALE * features), labels)
        losses = [row["val_loss"] for row in job.history]
        published = min(losses) if job.run == "stopped" else losses[-1]
        assert published == pytest.approx(loss, rel=FLOAT32)


@pytest.mark.parametrize("seed", [0, 2])
def test_bytes_in_closed_form(page, seed):
    size = 4 * (64 * 16 + 16 + 16 * 10 + 10)
    allreduce, stopped, simulated = (
        page.raw.runs[run][seed].summary for run in ("allreduce", "stopped", "simulated")
    )
    # Two ranks send each other their gradient in every step.
    assert allreduce["bytes_sent"]["gradient"] == 2 * size * allreduce["steps"]
    # Each of two workers sends one gradient per step to the server.
    assert stopped["bytes_sent"]["gradient"] == 2 * size * stopped["steps"]
    assert "gradient" not in simulated["bytes_sent"]
