"""Folds in parallel and one after the other, and the paired test that ends the folds of a trial early."""

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import Cluster, draw, epochs_trained, made_up, run, search

from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.study.study import Study, next_fold, pruned
from nnlo_lib.search.study.trial import FoldTask

IN_TURN = {"k": 5, "in_turn": True, "prune": 0.05}
GOOD = [0.1, 0.2, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("folds", "known", "fold"),
    [
        ({"k": 3}, [None], 1),
        ({"k": 3}, [None, None], 2),
        ({"k": 3}, [None, None, None], None),
        ({"k": 3}, [None, math.inf], None),  # no more after a failure
        (IN_TURN, [None], None),
        (IN_TURN, [0.1], 1),
        (IN_TURN, [0.1, None], None),
        (IN_TURN, [0.1, math.inf], None),
    ],
)
def test_folds_begin_at_once_or_wait_for_each_other(folds: Any, known: Any, fold: int | None) -> None:
    found = next_fold(made_up(search(folds=folds), {(0, 9): known}), 0)
    assert found == (None if fold is None else FoldTask(0, fold, 9))


def test_a_trial_that_is_clearly_worse_gets_no_more_folds() -> None:
    wanted, worse = search(folds=IN_TURN), [each + 1 for each in GOOD]
    worse[1] += 0.01

    def is_pruned(leader: list[float], trial: list[float], rung: int = 9) -> bool:
        return pruned(made_up(wanted, {(0, rung): leader, (1, 9): trial}), 1, 9)

    assert not is_pruned(GOOD, worse[:1]), "one fold tells nothing"
    assert is_pruned(GOOD, worse[:2])
    assert next_fold(made_up(wanted, {(0, 9): GOOD, (1, 9): worse[:2]}), 1) is None
    assert not is_pruned(worse, GOOD[:2]), "it is better"
    assert not is_pruned(GOOD, [0.2, 0.1]), "on one fold it is better"
    assert not is_pruned(GOOD[:4], worse[:2]), "no other has all folds"
    assert not is_pruned(GOOD, worse[:2], rung=3), "none is on the same rung"
    # Rounded accuracies often give two equal differences, which are no evidence.
    assert not is_pruned(GOOD, [each + 0.1 for each in GOOD[:2]])
    unpruned = search(folds=IN_TURN | {"prune": None})
    assert next_fold(made_up(unpruned, {(0, 9): GOOD, (1, 9): worse[:2]}), 1) == FoldTask(1, 2, 9)


def test_a_pruned_trial_counts_without_its_easy_folds_and_is_neither_best_nor_promoted() -> None:
    wanted = search(folds=IN_TURN, fidelity={"name": "asha", "first": 9, "factor": 2})
    known = made_up(wanted, {(0, 9): [0.0, 0.0, 9.0, 9.0, 9.0], (1, 9): [1.0, 1.01]}, epochs=18)
    assert pruned(known, 1, 9)
    assert known.final_value(1) == pytest.approx(5.4 + 1.005)
    assert known.final_value(0) == pytest.approx(5.4)
    assert known.best_trial() == 0
    assert build_pruner(wanted.fidelity).promote(known) == (0, 18)


@pytest.mark.parametrize(
    ("epoch", "values", "best"),
    [
        ("last", {(0, 3): [0.1, 0.1], (1, 9): [0.9, 0.9]}, 1),
        ("best", {(0, 3): [0.1, 0.1], (1, 9): [0.9, 0.9]}, 0),  # it can only get better
        ("best", {(0, 3): [0.1, 0.1], (1, 9): [0.9, None]}, 0),
        ("best", {(0, 3): [0.1, None], (1, 9): [0.9, None]}, 1),
        ("best", {(0, 9): [0.1, 0.1], (1, 9): [0.1, 0.1]}, 0),
        ("best", {(0, 9): [0.1, math.inf], (1, 3): [0.9, 0.9]}, 1),
        ("best", {(0, 9): [0.1, math.inf]}, None),
    ],
)
def test_best_has_all_folds_where_any_has_and_is_on_the_highest_rung(
    epoch: str, values: Any, best: Any
) -> None:
    assert made_up(search(folds={"k": 2}, objective={"epoch": epoch}), values).best_trial() == best


def test_pruning_saves_folds_and_finds_the_same_best(tmp_path: Path) -> None:
    best, spent = [], []
    for prune in (None, 0.05):
        folder, wanted = tmp_path / str(prune), search(trials=40, folds=IN_TURN | {"prune": prune})
        run(folder, wanted, Cluster(folder, 3, jitter=0.5))
        best.append(Study(folder, wanted, 9, draw, 3).snapshot().best_trial())
        spent.append(epochs_trained(folder))
    assert best[0] == best[1]
    assert spent[0] == 40 * 5 * 9
    assert spent[1] < 0.7 * spent[0]
