"""Pruners promote and stop the same trials as the papers' algorithms, written here with lists and numpy."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.simulated_search import Cluster, epochs_trained, made_up, near_the_best, run, search

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.pruners import bracket, build_pruner, ladder
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import (
    FoldTask,
    SchedulingDecision,
    decisions_in_order,
    read_result,
    read_trials,
)

EPOCHS = 27
ASHA = {"name": "asha", "first": 1, "factor": 3}
MEDIAN = {"name": "median", "grace": 2, "every": 3, "trials": 4}
Curves = dict[tuple[int, int], list[float]]  # losses by epoch of (trial, rung)


def unlucky(fold_task: FoldTask) -> bool:
    return fold_task.trial % 7 == 3 and fold_task.epochs > 1


def finished(folder: Path, fidelity: Any, fails: Any = unlucky, **settings: Any) -> SearchConfig:
    """Run a search of up to 40 trials on a simulated cluster and return its configuration."""
    wanted = search(fidelity=fidelity, **{"trials": 40, "parallel": 5} | settings)
    run(folder, wanted, Cluster(folder, wanted.parallel, jitter=1.0, fails=fails), near_the_best, EPOCHS)
    return wanted


def history(folder: Path) -> Iterator[tuple[SchedulingDecision, Curves, Counter[int]]]:
    """Yield each decision, the curves known at that time (empty for a failure), and the begun rungs per trial."""
    decisions = decisions_in_order(read_trials(folder))
    losses = [_losses(folder, decision.task) for decision in decisions]
    for decision in decisions:
        before = decisions[: decision.number]
        ended = [each for each in before if each.number not in decision.pending]
        curves = {(each.task.trial, each.task.epochs): losses[each.number] for each in ended}
        yield decision, curves, Counter(each.task.trial for each in before)


def _losses(folder: Path, fold_task: FoldTask) -> list[float]:
    result = read_result(folder, fold_task)
    assert result is not None
    return [row["val_loss"] for row in result.rows] if result.status == "finished" else []


def get_job(curves: Curves, begun: Counter[int], rungs: list[int], eta: int) -> tuple[int, int] | None:
    """Return the trial to promote and its new rung by algorithm 2 of Li et al. 2018; None: a new configuration."""
    for k in reversed(range(len(rungs) - 1)):
        rung = {
            trial: min(losses, default=math.inf) for (trial, at), losses in curves.items() if at == rungs[k]
        }
        candidates = sorted(rung, key=lambda trial: (rung[trial], trial))[: len(rung) // eta]
        promotable = [t for t in candidates if begun[t] == k + 1 and math.isfinite(rung[t])]
        if promotable:
            return promotable[0], rungs[k + 1]
    return None


@pytest.mark.parametrize("order", ["fixed", "as_finished"])
def test_asha_is_algorithm_2(order: str, tmp_path: Path) -> None:
    finished(tmp_path, ASHA, order=order)
    promotions = 0
    for decision, curves, begun in history(tmp_path):
        job = get_job(curves, begun, [1, 3, 9, 27], 3)
        assert (decision.task.trial, decision.task.epochs) == (job or (len(begun), 1))
        promotions += job is not None
    assert promotions >= 40 // 3


def test_several_folds_are_awaited_before_a_trial_counts() -> None:
    wanted, rule = search(folds={"k": 2}), build_pruner(search(fidelity=ASHA).fidelity)
    ended: dict[tuple[int, int], list[float | None]] = {(0, 1): [1.0, 1.0], (1, 1): [2.0, 2.0]}
    assert rule.promote(made_up(wanted, ended | {(2, 1): [0.1, None]})) is None
    assert rule.promote(made_up(wanted, ended | {(2, 1): [0.1]})) == (0, 3), (
        "no more folds: it has ended, as pruned"
    )
    assert rule.promote(made_up(wanted, ended | {(2, 1): [0.1, math.inf]})) == (0, 3)
    assert rule.promote(made_up(wanted, ended | {(2, 1): [0.1, 0.2]})) == (2, 3)
    assert rule.promote(made_up(wanted, ended | {(2, 1): [0.1, 0.2], (3, 1): [math.inf, None]})) == (2, 3)


@pytest.mark.parametrize(("factor", "epochs"), [(3, 27), (3, 30), (2, 64), (4, 256)])
def test_brackets_get_equal_epochs(factor: int, epochs: int) -> None:
    rungs = ladder(1, factor, epochs)
    brackets = len(rungs)
    costs = [np.diff([0, *rungs[s:]]) @ (1 / factor ** np.arange(brackets - s)) for s in range(brackets)]
    spent = np.zeros(brackets)
    for trial in range(400):
        s = bracket(rungs, factor, trial)
        spent[s] += costs[s]
        assert np.ptp(spent) <= max(costs), "never further apart than one trial"
    counts = np.bincount([bracket(rungs, factor, trial) for trial in range(400)])
    assert (np.diff(counts) < 0).all(), "the more a trial costs, the fewer"


def test_hyperband_is_asha_in_each_bracket(tmp_path: Path) -> None:
    wanted = finished(tmp_path, {"name": "hyperband", "first": 1, "factor": 3}, trials=60)
    rule, full = build_pruner(wanted.fidelity), [1, 3, 9, 27]
    brackets: dict[int, set[int]] = {}
    for trial in read_trials(tmp_path):
        rungs = rule.rungs(trial.number, EPOCHS)
        assert list(rungs) == full[-len(rungs) :]
        assert tuple(trial.rungs) == rungs[: len(trial.rungs)]
        brackets.setdefault(len(rungs), set()).add(trial.number)
    assert sorted(brackets) == [1, 2, 3, 4]
    for decision, curves, begun in history(tmp_path):
        jobs = []
        for size, members in brackets.items():
            inside = {key: losses for key, losses in curves.items() if key[0] in members}
            jobs.append(get_job(inside, begun, full[-size:], 3))
        goes_up = begun[decision.task.trial] > 0
        assert goes_up == any(jobs)
        assert not goes_up or (decision.task.trial, decision.task.epochs) in jobs


def stopped(curves: Curves, trial: int, rung: int) -> bool:
    """Return True if the median stopping rule of Golovin et al. 2017 stops a trial on a rung.

    The best value of the trial must be strictly worse than the median of the other trials' running averages.
    """
    others = [
        np.mean(losses) for (who, at), losses in curves.items() if at == rung and who != trial and losses
    ]
    return len(others) >= MEDIAN["trials"] and min(curves[trial, rung]) > np.median(others)


@pytest.mark.parametrize("order", ["fixed", "as_finished"])
def test_median_stopping_is_viziers(order: str, tmp_path: Path) -> None:
    finished(tmp_path, MEDIAN, order=order)
    full = [*range(2, 27, 3), 27]
    for decision, curves, begun in history(tmp_path):
        tops = {trial: full[count - 1] for trial, count in begun.items()}
        going = [
            (trial, full[full.index(top) + 1])
            for trial, top in sorted(tops.items())
            if top < 27 and curves.get((trial, top)) and not stopped(curves, trial, top)
        ]
        assert (decision.task.trial, decision.task.epochs) == (going[0] if going else (len(begun), 2))
    tops = Counter(max(trial.rungs) for trial in read_trials(tmp_path))
    assert tops[27] >= 5
    assert sum(tops.values()) - tops[27] >= 5


def test_median_stopping_waits_for_enough_others(tmp_path: Path) -> None:
    finished(tmp_path, MEDIAN | {"trials": 40}, lambda fold_task: False)
    assert epochs_trained(tmp_path) == 40 * EPOCHS


def test_all_failing_ends_the_search(tmp_path: Path) -> None:
    for fidelity in (ASHA, ASHA | {"name": "hyperband"}, MEDIAN):
        folder = tmp_path / str(fidelity["name"])
        wanted = finished(
            folder, fidelity, lambda fold_task: True, folds={"k": 3, "in_turn": True, "prune": 0.1}
        )
        study = Study(folder, wanted, EPOCHS, near_the_best, 5)
        assert len(study.decisions) == 40, "one fold task of each"
        assert study.snapshot().best_trial() is None
