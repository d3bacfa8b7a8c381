"""Folds in parallel and one after the other, and the paired test that ends the folds of a trial early."""

import math
from pathlib import Path

import pytest
from helpers.simulated_search import Cluster, draw, epochs_trained, made_up, run, search

from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.study.study import Study, next_fold, pruned
from nnlo_lib.search.study.trial import FoldTask

IN_TURN = {"k": 5, "in_turn": True, "prune": 0.05}
GOOD = [0.1, 0.2, 0.3, 0.2, 0.1]


def test_folds_at_a_time_begin_at_once() -> None:
    wanted = search(folds={"k": 3})
    assert next_fold(made_up(wanted, {(0, 9): [None]}), 0) == FoldTask(0, 1, 9)
    assert next_fold(made_up(wanted, {(0, 9): [None, None]}), 0) == FoldTask(0, 2, 9)
    assert next_fold(made_up(wanted, {(0, 9): [None, None, None]}), 0) is None
    assert next_fold(made_up(wanted, {(0, 9): [None, math.inf]}), 0) is None, "no more after a failure"


def test_folds_in_turn_wait_for_each_other() -> None:
    wanted = search(folds=IN_TURN)
    assert next_fold(made_up(wanted, {(0, 9): [None]}), 0) is None
    assert next_fold(made_up(wanted, {(0, 9): [0.1]}), 0) == FoldTask(0, 1, 9)
    assert next_fold(made_up(wanted, {(0, 9): [0.1, None]}), 0) is None
    assert next_fold(made_up(wanted, {(0, 9): [0.1, math.inf]}), 0) is None


def test_a_trial_that_is_clearly_worse_gets_no_more_folds() -> None:
    wanted, worse = search(folds=IN_TURN), [each + 1 for each in GOOD]
    worse[1] += 0.01
    assert not pruned(made_up(wanted, {(0, 9): GOOD, (1, 9): worse[:1]}), 1, 9), "one fold tells nothing"
    assert pruned(made_up(wanted, {(0, 9): GOOD, (1, 9): worse[:2]}), 1, 9)
    assert next_fold(made_up(wanted, {(0, 9): GOOD, (1, 9): worse[:2]}), 1) is None
    assert not pruned(made_up(wanted, {(0, 9): worse, (1, 9): GOOD[:2]}), 1, 9), "it is better"
    assert not pruned(made_up(wanted, {(0, 9): GOOD, (1, 9): [0.2, 0.1]}), 1, 9), "on one fold it is better"
    assert not pruned(made_up(wanted, {(0, 9): GOOD[:4], (1, 9): worse[:2]}), 1, 9), "no other has all folds"
    assert not pruned(made_up(wanted, {(0, 3): GOOD, (1, 9): worse[:2]}), 1, 9), "none is on the same rung"
    # Rounded accuracies often give two equal differences, which are no evidence.
    assert not pruned(made_up(wanted, {(0, 9): GOOD, (1, 9): [each + 0.1 for each in GOOD[:2]]}), 1, 9)
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


def test_best_has_all_folds_where_any_has_and_is_on_the_highest_rung() -> None:
    wanted = search(folds={"k": 2})
    late = search(folds={"k": 2}, objective={"epoch": "last"})
    assert made_up(late, {(0, 3): [0.1, 0.1], (1, 9): [0.9, 0.9]}).best_trial() == 1
    assert made_up(wanted, {(0, 3): [0.1, 0.1], (1, 9): [0.9, 0.9]}).best_trial() == 0, (
        "it can only get better"
    )
    assert made_up(wanted, {(0, 3): [0.1, 0.1], (1, 9): [0.9, None]}).best_trial() == 0
    assert made_up(wanted, {(0, 3): [0.1, None], (1, 9): [0.9, None]}).best_trial() == 1
    assert made_up(wanted, {(0, 9): [0.1, 0.1], (1, 9): [0.1, 0.1]}).best_trial() == 0
    assert made_up(wanted, {(0, 9): [0.1, math.inf], (1, 3): [0.9, 0.9]}).best_trial() == 1
    assert made_up(wanted, {(0, 9): [0.1, math.inf]}).best_trial() is None


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
