"""What ends a search."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import Cluster, draw, made_up, run, search

from nnlo_lib.search.fidelity.build import policy
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.limits import covered, exhausted, reached
from nnlo_lib.search.study import Study, goes_on
from nnlo_lib.search.trial import in_order, read_result, read_trials


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12))
def test_time_is_counted_once(spans: list[tuple[int, int]]) -> None:
    seconds = {second for start, length in spans for second in range(start, start + length)}
    assert covered((start, start + length) for start, length in spans) == len(seconds)


def clocked(wanted: Any, *spans: tuple[float, float]) -> Knowledge:
    """Return what is known after trainings on 2 cores and 1 GPU at these hours."""
    known = made_up(wanted, {(trial, 9): [1.0] for trial in range(len(spans))})
    results = {
        leaf: replace(result, started=3600 * start, ended=3600 * end, cores=2, gpus=1)
        for (leaf, result), (start, end) in zip(known.results.items(), spans, strict=True)
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
    assert exhausted(clocked(search(budget=budget), (0, 1), (0.5, 1.5), (10, 11), (10.5, 11.5))) == words


def test_trials() -> None:
    assert exhausted(made_up(search(trials=2), {(1, 9): [0.1]})) == "2 trials"
    assert exhausted(made_up(search(trials=3), {(1, 9): [0.1]})) is None


def test_a_budget_ends_a_search_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    small, large = ({"budget": {"core_hours": hours}, "trials": 1000, "parallel": 2} for hours in (5, 10))
    run(tmp_path, search(**small), Cluster(tmp_path, 2))
    first = [read_result(tmp_path, decision.leaf) for decision in in_order(read_trials(tmp_path))]
    used = [2 * result.seconds / 3600 for result in first if result]
    assert sum(used) >= 5
    assert sum(used) - 2 * max(used) < 5, "no more than what was in training then"
    then = run(tmp_path, search(**large), Cluster(tmp_path, 2))
    assert min(leaf.trial for leaf in then.started) == len(first)


def test_target_is_that_of_the_best_with_all_folds() -> None:
    wanted = search(objective={"target": 0.2}, folds={"k": 2})
    assert reached(made_up(wanted, {(0, 9): [0.1, None]})) is None
    assert reached(made_up(wanted, {(0, 9): [0.1, 0.4]})) is None
    assert reached(made_up(wanted, {(0, 9): [0.1, 0.3]})) == "trial 0 has reached val_loss 0.2"
    assert reached(made_up(wanted, {(0, 3): [0.1, 0.1]})) == "trial 0 has reached val_loss 0.1"
    assert reached(made_up(wanted, {(0, 3): [0.1, 0.1], (1, 9): [0.4, 0.4]})) is None, "0 is not the best"
    assert reached(made_up(wanted, {(0, 9): [math.inf, 0.1]})) is None
    upwards = search(objective={"target": 0.2, "direction": "maximize"})
    assert reached(made_up(upwards, {(0, 9): [0.1]})) is None
    assert reached(made_up(upwards, {(0, 9): [0.3]})) == "trial 0 has reached val_loss 0.3"


@pytest.mark.parametrize("order", ["fixed", "as_finished"])
@pytest.mark.parametrize("fidelity", ["full", "asha", "median"])
def test_a_target_ends_a_search_and_a_harder_one_goes_on(order: str, fidelity: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"order": order, "trials": 300, "fidelity": {"name": fidelity}}
    trials, left = [], []
    for target in (0.5, 0.3, 0.18):
        wanted = search(objective={"target": target}, **settings)
        run(tmp_path, wanted)
        known = Study(tmp_path, wanted, 9, draw, 3).known()
        assert reached(known)
        best = known.best()
        assert best is not None
        assert min(known.known(best, known.top(best))) <= target
        trials.append(len(known.trials))
        unlimited = search(**settings | {"trials": len(known.trials)})
        left += [goes_on(known, policy(unlimited.fidelity))]
    assert any(left) or fidelity == "full", "trials that would have gone on do not"
    assert trials == sorted(trials)
    assert trials[-1] < 300
    assert trials[0] < trials[-1]
