"""Effects of folds, without which trials with different folds are compared, and the test that prunes trials."""

import csv
import itertools
import math

import numpy as np
import pytest
from helpers.simulated_search import made_up, search
from helpers.synthetic_search import MadeUp
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nnlo_lib.executors.progress import format_progress
from nnlo_lib.report.search.importance import fit_forest
from nnlo_lib.report.search.study_data import StudyData, searched_parameters
from nnlo_lib.report.search.trial_charts import learning_curve_figure
from nnlo_lib.report.search.trial_tables import trial_rows
from nnlo_lib.search.best import write_table
from nnlo_lib.search.fold_statistics import (
    MIN_TRIALS,
    FoldEffects,
    FoldNoise,
    paired_p_value,
    pruning_p_value,
)
from nnlo_lib.search.samplers.base import observe
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import running_average
from nnlo_lib.search.study.trial_summary import format_objective, summarize_trial

FOLDS = {"k": 4, "in_turn": True}
EASY = [0.1, 0.1, 0.9, 0.9]  # two easy folds and two difficult ones
KNOWN = {(0, 9): EASY, (1, 9): [each + 0.2 for each in EASY], (2, 9): [0.2, 0.2], (3, 9): [0.4]}
LEVEL, SEARCHES = 0.05, 1000


@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=8),
    st.lists(st.integers(-9, 9), min_size=2, max_size=6),
    st.data(),
)
def test_effects_of_an_additive_table_are_exact(trials, folds, data):
    """The mean over all folds follows from any of them if value = trial + fold, as least squares finds, too."""
    table = np.add.outer(trials, folds).astype(float)
    effects = FoldEffects.of(table.tolist())
    assert effects.effects == pytest.approx(np.array(folds) - np.mean(folds), abs=1e-12)
    known = data.draw(st.sets(st.sampled_from(range(len(folds))), min_size=1))
    for trial, row in zip(trials, table, strict=True):
        found = effects.adjusted_mean({fold: row[fold] for fold in known})
        assert found == pytest.approx(trial + np.mean(folds), abs=1e-12)


def test_a_poor_trial_does_not_decide_which_folds_are_difficult():
    usual = [[0.1, 0.3], [0.2, 0.4], [0.3, 0.5]]
    assert FoldEffects.of([*usual, [90.0, 1.0]]).effects == pytest.approx((-0.1, 0.1))


def test_without_trials_nothing_is_adjusted():
    assert FoldEffects.of([]).adjusted_mean({0: 1.0, 1: 2.0}) == 1.5
    assert FoldEffects.of([[1.0]]).adjusted_mean({0: 1.0}) == 1.0


def test_two_easy_folds_do_not_make_a_trial_the_best():
    """The plain mean of trial 2 is 0.2, and its mean over all folds is 0.6: worse than that of trial 0, 0.5."""
    known = made_up(search(folds=FOLDS), KNOWN)
    assert [known.mean_value(trial, 9) for trial in range(4)] == pytest.approx([0.5, 0.7, 0.6, 0.8])
    assert [known.final_value(trial) for trial in range(4)] == pytest.approx([0.5, 0.7, 0.6, 0.8])


def test_proposals_learn_adjusted_values():
    wanted = search(folds=FOLDS)
    observed = observe(SearchSpace(wanted.space), made_up(wanted, KNOWN))
    # The points of `made_up` lack a key of the space, so that the space of the learning rate alone is asked.
    rate = SearchSpace({key: wanted.space[key] for key in ["train.optimizer.lr"]})
    values = [value for _, value in observe(rate, made_up(wanted, KNOWN)).evaluated]
    assert values == pytest.approx([0.5, 0.7, 0.6, 0.8])
    assert not observed.evaluated


def test_running_averages_of_the_median_rule_are_adjusted():
    known = made_up(search(folds=FOLDS), KNOWN)
    assert known.mean_value(2, 9, running_average) == pytest.approx(0.6)


def test_the_summary_says_from_how_many_folds_a_value_is():
    wanted = search(folds=FOLDS)
    complete, adjusted = (summarize_trial(made_up(wanted, KNOWN), trial) for trial in (0, 2))
    assert (complete.objective, complete.adjusted_from) == (0.5, 0)
    assert (adjusted.objective, adjusted.adjusted_from) == (pytest.approx(0.6), 2)
    assert format_objective(wanted.objective, adjusted) == "val_loss 0.6 +- 0 (adjusted, from 2 folds)"
    assert "(adjusted" not in format_objective(wanted.objective, complete)
    line = format_progress(made_up(wanted, KNOWN), 2, 9, 0.0, [])
    assert line.startswith("trial 2  val_loss 0.6 +- 0 (adjusted, from 2 of 4 folds)")


@pytest.fixture
def pruned_search(tmp_path):
    """Return a search with ten trials on all folds and two, the last ones, on the two easy folds."""
    made = MadeUp(tmp_path, folds={"k": 4, "in_turn": True})
    for number in range(10):
        made.trial(worth=[number / 10 + each for each in EASY])
    for number in (20, 30):
        made.trial(worth=[number / 10 + each for each in EASY[:2]])
    return made


def test_table_page_importance_and_curves_are_adjusted_and_say_so(pruned_search, tmp_path):
    data, offset = StudyData.load(pruned_search.folder), math.exp(-9 / 2)
    assert data.rows[10].objective == pytest.approx(2.0 + 0.5 + offset)
    write_table(tmp_path / "trials.csv", data.study)
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    assert [row["adjusted_from_folds"] for row in rows] == [""] * 10 + ["2", "2"]
    assert float(rows[11]["objective"]) == pytest.approx(3.5 + offset)
    cells = {row[0]: row[1] for row in trial_rows(data, [])[1]}
    assert cells["10"].endswith("(adjusted, from 2 folds)")
    assert "adjusted" not in cells["9"]
    assert fit_forest(data, searched_parameters(data, data.rows)) is not None
    assert sorted(row.objective for row in data.ranked_rows)[-2:] == pytest.approx(
        [2.5 + offset, 3.5 + offset]
    )
    columns = learning_curve_figure(data).spec["layer"][0]["data"]["columns"]
    ends = dict(zip(columns["trial"], columns["y"], strict=True))  # the last epoch of each trial
    assert ends[10] > max(ends[number] for number in range(10))


@pytest.mark.parametrize(
    ("settings", "added", "order"),
    [
        ({"folds": {"k": 2, "in_turn": True}}, [{"worth": [0.5, 0.7]}, {"worth": [0.1]}, {"worth": [0.4, 0.6]}], [2, 0, 1]),
        (
            {"objective": {"epoch": "last"}, "fidelity": {"name": "asha", "first": 3}},
            [{"worth": [-5.0], "rungs": [3]}, *({"worth": [worth], "rungs": [3, 9]} for worth in (0.5, 0.4))],
            [2, 1, 0],
        ),
    ],
    ids=["fewer folds", "lower rungs"],
)  # fmt: skip
def test_trials_that_are_no_candidates_for_the_best_come_after_them(tmp_path, settings, added, order):
    made = MadeUp(tmp_path, **settings)
    for each in added:
        made.trial(**each)
    assert [row.number for row in StudyData.load(made.folder).ranked_rows] == order


def trials(source: np.random.Generator, count: int, k: int, rounded: float) -> np.ndarray:
    """Return values of equally good trials, (count, k), with the correlation 1/k of folds that share data.

    `rounded` is the resolution of the values in standard deviations; 0: none.
    """
    own = math.sqrt(1 - 1 / k) * source.normal(size=(count, k))
    common = math.sqrt(1 / k) * source.normal(size=(count, 1))
    values = own + common
    return 2 * source.normal(size=k).round() + (np.round(values / rounded) * rounded if rounded else values)


def is_pruned(values: np.ndarray, candidate: np.ndarray) -> bool:
    """Return True if the test prunes a trial, after any fold, in favor of the best of other trials."""
    k, noise = len(candidate), FoldNoise.of(values.tolist())
    best = values[values.mean(axis=1).argmin()].tolist()
    p_values = (pruning_p_value(candidate[:n].tolist(), best, len(values), noise) for n in range(2, k))
    return any(p_value < LEVEL for p_value in p_values)


DAILY = [(3, 1, 0.0), (5, MIN_TRIALS, 1.0), (10, 30, 0.0)]  # the other cases are exhaustive
CASES = [
    pytest.param(*case, marks=[] if case in DAILY else pytest.mark.exhaustive)
    for case in itertools.product([3, 5, 10], [1, MIN_TRIALS, 30], [0.0, 1.0])
]


@pytest.mark.parametrize(("k", "others", "rounded"), CASES)
def test_equal_trials_are_pruned_no_more_often_than_the_level(k: int, others: int, rounded: float) -> None:
    source = np.random.default_rng([k, others])
    wrong = 0
    for _ in range(SEARCHES):
        every = trials(source, others + 1, k, rounded)
        wrong += is_pruned(every[:-1], every[-1])
    # Fixed seeds: the result is the same on each machine. The margin is three standard errors.
    assert wrong / SEARCHES <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / SEARCHES)


@pytest.mark.parametrize("k", [3, 5, 10])
def test_trials_that_are_clearly_worse_are_pruned(k: int) -> None:
    """A trial that is worse by six standard deviations of a fold."""
    source, found = np.random.default_rng(k), 0
    for _ in range(100):
        every = trials(source, 31, k, 0.0)
        found += is_pruned(every[:-1], every[-1] + 6)
    assert found > 80


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=9), st.integers(3, 10))
def test_p_value_of_few_trials_is_scipys_paired_test_with_the_variance_of_nadeau_and_bengio(
    tenths: list[int], folds: int
) -> None:
    differences = np.array(tenths[: folds - 1]) / 10
    found = paired_p_value(differences.tolist(), [0.0] * folds, FoldNoise())
    if np.ptp(differences) == 0:
        assert found == 1, "equal differences are no evidence"
        return
    n = len(differences)
    plain = stats.ttest_1samp(differences, 0).statistic
    corrected = plain * math.sqrt((1 / n) / (1 / n + 1 / (folds - 1)))
    assert found == pytest.approx(stats.t(n - 1).sf(corrected), rel=1e-9)


def test_noise_of_trials_with_equal_variances_is_pooled() -> None:
    """The variance is known well from many trials, whatever the folds of one trial say."""
    source = np.random.default_rng(0)
    noise = FoldNoise.of((3 * source.normal(size=(200, 5)) + source.normal(size=5)).tolist())
    assert noise.dof > 40
    assert noise.variance == pytest.approx(9, rel=0.15)
    assert noise.moderated_variance([1.0, 1.0])[0] == pytest.approx(9, rel=0.2)


def test_noise_of_trials_with_different_variances_is_that_of_each_trial() -> None:
    source = np.random.default_rng(0)
    scales = np.exp(2 * source.normal(size=(200, 1)))
    noise = FoldNoise.of((scales * source.normal(size=(200, 5))).tolist())
    assert noise.dof < 2


def test_without_variation_nothing_is_known() -> None:
    assert FoldNoise.of([[0.5] * 5] * 10).dof == 0
    assert pruning_p_value([0.6, 0.6], [0.5] * 5, 10, FoldNoise.of([[0.5] * 5] * 10)) == 1
