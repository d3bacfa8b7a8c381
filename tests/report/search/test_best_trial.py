"""The sentence on the trials that may be as good as the best one, from the folder of a search."""

import math

import pytest
from helpers.synthetic_search import MadeUp
from scipy import stats

from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.search.trial_tables import (
    base_sentence,
    best_trial_sentence,
    compare_trials,
    fold_figure,
)

BEST, NEAR, POOR = [0.10, 0.20, 0.15], [0.11, 0.19, 0.17], [0.50, 0.61, 0.56]


@pytest.fixture
def searched(tmp_path):
    def make(*trials, folds=3, rungs=None):
        made = MadeUp(tmp_path, folds={"k": folds})
        for values in trials:
            made.trial(worth=values, rungs=rungs)
        return made, StudyData.load(made.folder)

    return make


def sentence(data):
    return best_trial_sentence(data, compare_trials(data))


def test_a_trial_within_the_variation_may_be_as_good(searched):
    _, data = searched(NEAR, BEST, POOR)
    assert sentence(data) == (
        "Of 2 other trials with the same epochs and folds, 1 is worse, and 1 may be as good: trial 0."
    )


def test_the_difference_is_that_of_the_folds(searched):
    """Oracle: mean and interval by hand, with the factor 1/3 + 1/2 of Nadeau and Bengio."""
    _, data = searched(BEST, POOR)
    differences = [poor - best for poor, best in zip(POOR, BEST, strict=True)]
    mean = sum(differences) / 3
    std = math.sqrt(sum((each - mean) ** 2 for each in differences) / 2)
    width = stats.t.ppf(0.975, 2) * std * math.sqrt(1 / 3 + 1 / 2)
    [found] = compare_trials(data)
    assert (found.test.low, found.test.high) == pytest.approx((mean - width, mean + width))
    assert fold_figure(data, [found]).rows[1][-1].startswith("+0.407 [")


def test_trials_with_fewer_epochs_are_not_compared(searched):
    made, _ = searched(BEST, NEAR)
    made.trial(worth=POOR, rungs=[3])
    data = StudyData.load(made.folder)
    assert [each.trial for each in compare_trials(data)] == [1]


@pytest.mark.parametrize(("folds", "said"), [(1, "Each trial is a single"), (2, "The trials are not tested")])
def test_too_few_folds_are_named(searched, folds, said):
    _, data = searched([0.1] * folds, [0.2] * folds, folds=folds)
    assert sentence(data).startswith(said)


def test_a_single_trial_needs_no_sentence(searched):
    assert sentence(searched(BEST)[1]) == ""


@pytest.mark.parametrize(
    ("trials", "folds", "said"),
    [
        ((POOR, BEST), 3, "Best against the experiment's own settings (trial 0): −0.407 ["),
        ((NEAR, BEST), 3, ", which may be chance."),
        ((BEST, POOR), 3, "The experiment's own settings (trial 0) are the best trial."),
        (
            ([0.2, 0.2], [0.1, 0.2]),
            2,
            "cannot be compared with the experiment's own settings (trial 0): a test needs 3 folds (search.folds.k).",
        ),
    ],
    ids=["better", "near", "best", "two folds"],
)
def test_the_best_trial_against_the_experiments_own_settings(tmp_path, trials, folds, said):
    made = MadeUp(tmp_path, space={"train.optimizer.lr": {"uniform": [0, 1]}}, folds={"k": folds})
    for lr, worth in zip((made.experiment.train.optimizer.lr, 0.5), trials, strict=True):
        made.trial({"train.optimizer.lr": lr}, worth=worth)
    data = StudyData.load(made.folder)
    assert said in base_sentence(data, compare_trials(data))


def test_a_search_that_began_with_another_trial_has_no_sentence(searched):
    _, data = searched(NEAR, BEST)
    assert base_sentence(data, compare_trials(data)) == ""
