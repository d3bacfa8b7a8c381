"""A search ends at its budget, its number of trials, or its target."""

import math
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import Cluster, draw, made_up, run, search

from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.study import (
    Study,
    hours,
    next_task,
    reason_target_reached,
    reason_to_end,
)
from nnlo_lib.search.study.trial import decisions_in_order, read_result, read_trials, resource_hours
from nnlo_lib.search.study.trial_summary import format_selection


def clocked(wanted: Any, *spans: tuple[float, float]) -> StudySnapshot:
    """Return a study after trainings on 2 cores and 1 GPU; each span is (start, end) in hours."""
    known = made_up(wanted, {(trial, 9): [1.0] for trial in range(len(spans))})
    results = {
        fold_task: replace(result, started=3600 * start, ended=3600 * end, cores=2, gpus=1)
        for (fold_task, result), (start, end) in zip(known.results.items(), spans, strict=True)
    }
    return replace(known, results=results)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"hours": 3.1}, None),
        ({"hours": 3}, "3 hours used"),
        ({"core_hours": 8.1}, None),
        ({"core_hours": 8}, "8 core-hours used"),
        ({"gpu_hours": 4.1}, None),
        ({"gpu_hours": 4}, "4 gpu-hours used"),
    ],
)
def test_budget(budget: dict[str, float], words: str | None) -> None:
    known = clocked(search(budget=budget), (0, 1), (0.5, 1.5), (10, 11), (10.5, 11.5))
    assert reason_to_end(known) == words


FOLDS = {"k": 2}
LATE, UP = {"target": 0.2, "epoch": "last"}, {"target": 0.2, "direction": "maximize"}
TARGETS: list[tuple[Any, Any, Any, str | None]] = [
    ({"target": 0.2}, FOLDS, {(0, 9): [0.1, None]}, None),
    ({"target": 0.2}, FOLDS, {(0, 9): [0.1, 0.4]}, None),
    ({"target": 0.2}, FOLDS, {(0, 9): [0.1, 0.3]}, "trial 0 has reached val_loss 0.2"),
    ({"target": 0.2}, FOLDS, {(0, 3): [0.1, 0.1]}, "trial 0 has reached val_loss 0.1"),
    (LATE, FOLDS, {(0, 3): [0.1, 0.1], (1, 9): [0.4, 0.4]}, None),  # 0 is not the best
    (
        {"target": 0.2},
        FOLDS,
        {(0, 3): [0.1, 0.1], (1, 9): [0.4, 0.4]},
        "trial 0 has reached val_loss 0.1",
    ),  # at its rung
    ({"target": 0.2}, FOLDS, {(0, 9): [math.inf, 0.1]}, None),
    (UP, {}, {(0, 9): [0.1]}, None),
    (UP, {}, {(0, 9): [0.3]}, "trial 0 has reached val_loss 0.3"),
]


@pytest.mark.parametrize(("objective", "folds", "values", "words"), TARGETS)
def test_target_is_that_of_the_best_with_all_folds(
    objective: Any, folds: Any, values: Any, words: Any
) -> None:
    assert reason_target_reached(made_up(search(objective=objective, folds=folds), values)) == words


@pytest.mark.parametrize(
    ("order", "fidelity"), [("fixed", "full"), ("as_finished", "asha"), ("fixed", "median")]
)
def test_a_target_ends_a_search_and_a_harder_one_goes_on(order: str, fidelity: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"order": order, "trials": 300, "fidelity": {"name": fidelity}}
    trials, left = [], []
    for target in (0.5, 0.3, 0.18):
        wanted = search(objective={"target": target}, **settings)
        run(tmp_path, wanted)
        known = Study(tmp_path, wanted, 9, draw, 3).snapshot()
        assert reason_target_reached(known)
        best = known.best_trial()
        assert best is not None
        assert min(known.fold_values(best, known.top(best))) <= target
        trials.append(len(known.trials))
        unlimited = search(**settings | {"trials": len(known.trials)})
        left += [next_task(known, build_pruner(unlimited.fidelity))]
    assert any(left) or fidelity == "full", "trials that would have gone on do not"
    assert trials == sorted(trials)
    assert trials[-1] < 300
    assert trials[0] < trials[-1]


IN_TURN = {"k": 3, "in_turn": True}
SPENT = [("full", {}), ("asha", IN_TURN), ("hyperband", {}), ("median", IN_TURN)]


@pytest.mark.parametrize(("fidelity", "folds"), SPENT, ids=[name for name, _ in SPENT])
def test_a_spent_budget_begins_nothing(fidelity: str, folds: dict[str, Any], tmp_path: Path) -> None:
    """No trial, promotion or fold begins after the result that used up the budget."""
    settings = {"trials": 1000, "parallel": 8, "fidelity": {"name": fidelity}, "folds": folds}
    wanted = search(**settings, budget={"core_hours": 5})
    run(tmp_path, wanted, Cluster(tmp_path, 8, jitter=0.5))
    found = [read_result(tmp_path, decision.task) for decision in decisions_in_order(read_trials(tmp_path))]
    results = sorted((each for each in found if each), key=lambda each: each.ended)
    used = list(accumulate(2 * each.seconds / 3600 for each in results))
    spent = next(each.ended for each, hours in zip(results, used, strict=True) if hours >= 5)
    assert [each for each in results if each.started >= spent] == []
    larger = search(**settings, budget={"core_hours": 20})
    assert run(tmp_path, larger, Cluster(tmp_path, 8, now=spent)).started, "a larger one goes on"


VALUES: Any = {(0, 3): [0.1], (1, 3): [0.5], (2, 9): [0.4], (3, 3): [math.inf]}


@pytest.mark.parametrize(
    ("settings", "values", "words"),
    [
        ({}, VALUES, "selected from 3 trials trained for 3 to 9 epochs"),
        ({"objective": {"epoch": "last"}}, VALUES, "selected from 1 trial trained for 9 epochs"),
        ({}, {(0, 9): [0.1], (1, 9): [0.2]}, ""),
        ({}, {(0, 3): [0.1], (1, 3): [0.2]}, ""),
        ({"folds": FOLDS}, {(0, 9): [0.1, None]}, "selected from trials with incomplete folds"),
    ],
)
def test_what_the_best_was_chosen_among(settings: Any, values: Any, words: str) -> None:
    assert format_selection(made_up(search(**settings), values)) == words


def test_hours_of_interrupted_attempts_count_once(tmp_path: Path) -> None:
    """Two attempts of 1 h were preempted, the second one while another trial was trained; each ends after 1 h."""
    known = clocked(search(budget={"hours": 3}), (4, 5), (2, 3))
    first, second = known.results
    seconds = ((0.0, 3600.0), (7200.0, 10800.0))
    preempted = replace(known.results[first], interrupted=7200.0, earlier=seconds)
    preempted.write(tmp_path)
    assert read_result(tmp_path, first) == preempted, "the attempts are on disk"
    found = replace(known, results={first: preempted, second: known.results[second]})
    assert hours(found) == 3
    assert resource_hours(found.results.values(), "cores") == 2 * 4
    assert reason_to_end(found) == "3 hours used"
