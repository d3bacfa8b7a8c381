"""Proposals of the samplers are reproducible, never repeat a point, and are better than chance."""

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.samplers.base import build_sampler, observe
from nnlo_lib.search.samplers.bayesian import log_expected_improvement
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, SearchPoint, Trial

METHODS = ("auto", "skopt", "genetic", "random", "sobol", "grid")
LEARNING = ("auto", "genetic")
MIXED = {
    "optimizer": ["sgd", "adam", None],
    "lr": {"log_uniform": [1e-5, 1]},
    "momentum": {"uniform": [0, 1], "when": {"optimizer": "sgd"}},
    "layers": {"integer": [1, 6]},
    "fixed": "x",
}
PLANE = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
FINITE = {
    "a": ["p", "q", None, True],
    "n": {"integer": [1, 4], "when": {"a": ["p", None]}},
    "m": {"choice": [1, 2.5], "when": {"n": [2, 3]}},
    "one": 1,
}  # 2 + 2 (1 + 2 + 2 + 1) = 14 points


def searching(
    method: str, space: dict[str, Any], trials: int = 40, seed: int = 0, **settings: Any
) -> SearchConfig:
    given = {"space": space, "method": {"name": method} | settings, "trials": trials, "seed": seed}
    return SearchConfig.model_validate(given)


Loss = float | None  # NaN for a failure, None for a pending result


def known(
    search: SearchConfig, points: Iterable[SearchPoint], values: Iterable[Loss | dict[int, Loss]]
) -> StudySnapshot:
    """Return a study with trials of 9 epochs, or with losses by rung."""
    trials, results = [], {}
    for number, (point, value) in enumerate(zip(points, values, strict=True)):
        rungs = value if isinstance(value, dict) else {9: value}
        fold_tasks = [FoldTask(number, 0, epochs) for epochs in rungs]
        trials.append(
            Trial(number, point, tuple(SchedulingDecision(number, task, ()) for task in fold_tasks))
        )
        for fold_task, loss in zip(fold_tasks, rungs.values(), strict=True):
            if loss is not None:
                status = "failed" if math.isnan(loss) else "finished"
                results[fold_task] = Result(fold_task, status, ({"val_loss": loss, "seconds": 1.0},))
    return StudySnapshot(search, 9, trials, results)


def run(
    search: SearchConfig, value: Callable[[SearchPoint], float], trials: int, pending: int = 0
) -> list[SearchPoint]:
    """Return the proposals of a search until no point is left; the losses of the `pending` latest are unknown."""
    propose = build_sampler(search)
    points: list[SearchPoint] = []
    for number in range(trials):
        values = [value(point) if i < number - pending else None for i, point in enumerate(points)]
        if (point := propose(number, known(search, points, values))) is None:
            break
        points.append(point)
    return points


def loss(point: SearchPoint) -> float:
    """Return a loss that is lowest for adam with learning rate 0.01 and 3 layers."""
    away = (math.log10(point["lr"]) + 2) ** 2 + 0.1 * (point["layers"] - 3) ** 2
    return away + {"adam": 0, "sgd": 1 - point.get("momentum", 0) / 2, None: 2}[point["optimizer"]]


def bowl(point: SearchPoint) -> float:
    return (point["x"] - 0.3) ** 2 + (point["y"] - 0.8) ** 2


def replay() -> str:
    """Return the proposals of all methods as JSON."""
    short = {
        "auto": {"initial": 4},
        "skopt": {"initial": 4, "base_estimator": "ET"},
        "genetic": {"population": 4},
    }
    searches = {name: searching(name, MIXED, seed=3, **short.get(name, {})) for name in METHODS}
    return json.dumps({name: run(search, loss, 9, pending=2) for name, search in searches.items()})


@pytest.mark.processes
def test_another_process_proposes_the_same() -> None:
    """The hash seed and the number of threads of a process do not matter."""
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", "import test_search_samplers; print(test_search_samplers.replay())"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == replay()


@pytest.mark.parametrize("name", METHODS)
def test_each_point_of_a_finite_space_is_proposed_once(name: str) -> None:
    search = searching(name, FINITE)
    points = run(search, lambda point: len(repr(point)), 20, pending=4)
    assert sorted(map(repr, points)) == sorted(map(repr, SearchSpace(search.space).points()))
    assert len(points) == 14


@pytest.mark.parametrize("name", METHODS)
def test_every_proposal_is_a_point_that_json_keeps(name: str) -> None:
    search = searching(name, MIXED, seed=1)
    points = run(search, loss, 15, pending=4)
    assert len(set(map(repr, points))) == 15
    assert all(point in SearchSpace(search.space) for point in points)
    assert repr(json.loads(json.dumps(points))) == repr(points)


@pytest.mark.parametrize("name", METHODS)
def test_seeds_differ(name: str) -> None:
    one, other = (run(searching(name, MIXED, seed=seed), loss, 3) for seed in (0, 1))
    assert (one == other) == (name == "grid")


def lowest(name: str, seed: int) -> float:
    return min(map(bowl, run(searching(name, PLANE, seed=seed), bowl, 25)))


@pytest.mark.parametrize("name", ["auto", "skopt"])
def test_models_find_the_bottom_of_a_bowl(name: str) -> None:
    assert lowest(name, 0) < statistics.median(lowest("random", seed) for seed in range(3)) / 3


@pytest.mark.parametrize("name", LEARNING)
def test_failures_repel(name: str) -> None:
    """If all trials in one half of the plane fail, less than a third of the last proposals are in that half."""
    points = run(searching(name, PLANE, seed=2), lambda p: math.nan if p["x"] > 0.5 else 1 + p["y"], 40)
    assert sum(point["x"] > 0.5 for point in points[20:]) < 7


def test_pending_points_keep_others_away() -> None:
    """Eight proposals are farther apart if the sampler knows the pending ones than if it does not."""
    search = searching("auto", PLANE)
    points = run(searching("sobol", PLANE), bowl, 20)
    values = [bowl(point) for point in points]
    together, alone = list(points), []
    for number in range(20, 28):
        worth = values + [None] * (number - 20)
        together.append(build_sampler(search)(number, known(search, together, worth)) or {})
        alone.append(build_sampler(search)(number, known(search, points, values)) or {})
    assert spread(together[20:]) > 1.5 * spread(alone)


def spread(points: list[SearchPoint]) -> float:
    """Return the mean distance of each point to its nearest neighbor."""
    places = np.array([list(point.values()) for point in points])
    distances = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(len(places))
    return float(distances.min(axis=1).mean())


def test_sobol_has_one_point_in_every_slice() -> None:
    """The first 64 scrambled Sobol points are a net: one point in each 64th of each key."""
    points = run(searching("sobol", PLANE), bowl, 64)
    for key in PLANE:
        assert sorted(int(64 * point[key]) for point in points) == list(range(64))


def test_grid_is_every_combination() -> None:
    points = run(searching("grid", PLANE, levels=3), bowl, 99)
    assert [tuple(point.values()) for point in points] == [(x, y) for x in (0, 0.5, 1) for y in (0, 0.5, 1)]


def test_mutation_shrinks() -> None:
    """Children of parents that agree in x deviate less in x as the search nears its last trial, finally not at all."""
    points = [{"x": 0.5, "y": (i + 0.5) / 40} for i in range(40)]

    def farthest(trials: int) -> float:
        search = searching("genetic", PLANE, trials=trials)
        child = build_sampler(search)(40, known(search, points[:10], [0.1 * i for i in range(10)]))
        return abs(child["x"] - 0.5) if child else math.nan

    assert farthest(40) == 0
    assert 0 < farthest(42) < 0.01 < farthest(400)


def test_children_of_the_best() -> None:
    """Without mutation a child lies on the line through its parents, at the better parent or beyond it."""
    search = searching("genetic", PLANE, trials=10, population=2)
    for number in range(10, 40):
        child = build_sampler(search)(
            number, known(search, [{"x": 0.4, "y": 0.4}, {"x": 0.3, "y": 0.2}], [1.0, 2.0])
        )
        assert child is not None
        if (child["x"], child["y"]) not in ((0.4, 0.4), (0.3, 0.2)):
            beyond = (child["x"] - 0.4) / 0.1
            assert 0 <= beyond <= 1
            assert child["y"] == pytest.approx(0.4 + 0.2 * beyond)


HIGH = [{1: 9.0, 3: float(i)} for i in range(4)]
OBSERVED = {  # trials with their losses by rung; the losses from which a model learns; pending trials
    "one rung": ([{1: 5.0}, {1: 4.0}, {1: None}], {0: 5.0, 1: 4.0}, {2}),
    "few at the upper": ([{1: 5.0}, {1: 4.0, 3: 3.0}, {1: 3.0, 3: None}], {0: 5.0, 1: 4.0, 2: 3.0}, set()),
    "d + 2 at the upper": (HIGH + [{1: 1.0}] * 5, {i: float(i) for i in range(4)}, set()),
    "d + 1": ([*HIGH[:3], {1: 1.0}], {0: 9.0, 1: 9.0, 2: 9.0, 3: 1.0}, set()),
    "failed": ([{1: 5.0}, {1: math.nan}, {1: 7.0}, {1: None}], {0: 5.0, 1: 7.0, 2: 7.0}, {3}),
    "failed late": ([{1: 5.0, 3: 4.0}] * 4 + [{1: 3.0, 3: math.nan}], dict.fromkeys(range(5), 4.0), set()),
    "only failed": ([{1: math.nan}, {1: None}], {}, {1}),
}


@pytest.mark.parametrize("case", OBSERVED)
def test_what_a_model_learns_from(case: str) -> None:
    values, learned, pending = OBSERVED[case]
    search = searching("auto", PLANE)
    points = [{"x": number / 20, "y": 0.5} for number in range(len(values))]
    observed = observe(SearchSpace(search.space), known(search, points, values))
    assert {round(20 * point["x"]): value for point, value in observed.evaluated} == learned
    assert {round(20 * point["x"]) for point in observed.pending} == pending
    assert len(observed.tried_keys) == len(values)


def test_points_of_another_space_are_not_learned_from() -> None:
    search = searching("auto", PLANE)
    points: list[SearchPoint] = [{"x": 0.1, "y": 0.1}, {"x": 3.0, "y": 0.1}, {"x": 0.1}, {"x": 0.1, "z": 1}]
    observed = observe(SearchSpace(search.space), known(search, points, [1.0, 2.0, 3.0, None]))
    assert observed.evaluated == [(points[0], 1.0)]
    assert observed.pending == []


def test_expected_improvement() -> None:
    draws = np.random.default_rng(0).standard_normal(400_000)
    for mean, deviation in ((0.5, 1.0), (-0.3, 0.2), (2.0, 0.7)):
        (closed,) = log_expected_improvement(np.array([mean]), np.array([deviation]), best=0.1)
        sampled = np.maximum(0.1 - (mean + deviation * draws), 0).mean()
        assert math.exp(closed) == pytest.approx(sampled, rel=0.05, abs=1e-3)


@pytest.mark.parametrize("z", [0.5, -0.99, -1.01, -5.0, -30.0, -300.0, -1e5])
def test_expected_improvement_far_from_the_best(z: float) -> None:
    """The logarithm agrees with 60 digits of a series or a continued fraction."""
    from mpmath import mp, mpf, ncdf, npdf

    with mp.workdps(60):
        # Below -40, the asymptotic series of 1 - |z| Mills(|z|): 1/z^2 - 3/z^4 + 15/z^6.
        precise = (
            npdf(mpf(z)) * (1 / mpf(z) ** 2 - 3 / mpf(z) ** 4)
            if z < -40
            else mpf(z) * ncdf(mpf(z)) + npdf(mpf(z))
        )
        expected = float(mp.log(precise))
    (found,) = log_expected_improvement(np.array([-z]), np.array([1.0]), best=0.0)
    assert found == pytest.approx(expected, rel=1e-6)
