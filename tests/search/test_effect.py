"""Searched keys without an effect: unused by all algorithms, the same training, equal values of finished trials."""

import pytest

from nnlo_lib.config import Experiment
from nnlo_lib.search.effect import question_of_effect, same_training, unused_reason
from nnlo_lib.search.study.trial_summary import TrialSummary


def experiment(space, **search):
    return Experiment.model_validate({"search": {"space": space, **search}})


@pytest.mark.parametrize(
    ("algorithms", "unused"), [(["allreduce", "downpour"], True), (["allreduce", "dsgd"], False)]
)
def test_a_graph_is_unused_if_no_algorithm_of_the_search_uses_it(algorithms, unused):
    searched = experiment({"algorithm.name": algorithms, "topology.name": ["complete", "cycle"]})
    assert ("does not use a graph" in unused_reason(searched, "topology.name")) == unused
    assert unused_reason(searched, "algorithm.name") == ""


@pytest.mark.parametrize(
    ("key", "values", "metric", "same"),
    [
        ("observe.tensorboard", [True, False], "val_loss", True),
        ("checkpoint.keep", [1, 2], "val_loss", True),
        ("checkpoint.keep", [1, 2], "seconds", False),
        ("checkpoint.keep", [2], "val_loss", False),
        ("train.batch_size", [8, 9], "val_loss", False),
        ("parallel.ranks", [1, 2], "val_loss", False),
        ("train.epochs", [1, 2], "val_loss", False),
    ],
)
def test_settings_that_change_only_times_give_the_same_training(key, values, metric, same):
    objective = {"metric": metric, "direction": "minimize"}
    assert same_training(experiment({key: values}, objective=objective), key) == same


def rows(values):
    """Return finished trials with these values by (a, b); None: without b."""
    return [
        TrialSummary(
            number, "finished", value, 0, 0.0, (value,), (0,), 3, (3,), 1.0, 1.0, 0.0,
            {"a": a} | ({} if b is None else {"b": b}), "",
        )
        for number, ((a, b), value) in enumerate(values.items())
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ({(1, 1): 0.5, (2, 2): 0.5, (3, 3): 0.5}, "3 points have the same value: a, b may"),
        ({(1, 1): 0.5, (2, 2): 0.5}, ""),
        # A grid, in which only one of the keys is misspelt.
        ({(a, b): a / 7 for a in (1, 2) for b in (1, 2)}, "points that differ in one key have the same value: b may"),
        ({(a, b): a / 7 for a in (1, 2) for b in (1, 2)} | {(3, 1): 0.1, (3, 2): 0.2}, ""),
        ({(1, 1): 0.5, (1, 2): 0.5, (2, 3): 0.7, (3, 4): 0.8}, ""),
        ({(1, None): 0.5, (2, None): 0.5, (1, 1): 0.6, (1, 2): 0.7}, ""),
        ({(1, 1): 0.5, (2, 2): 0.5, (3, 3): float("nan")}, ""),
    ],
    ids=["all", "two are chance", "one of two", "not in one place", "one pair is chance", "inactive", "failed"],
)  # fmt: skip
def test_equal_values_raise_a_question(values, asked):
    assert question_of_effect(rows(values)).startswith(asked or "!") == bool(asked)
    assert bool(question_of_effect(rows(values))) == bool(asked)
