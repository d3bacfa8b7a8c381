"""Points of a search space: allowed values, conditional keys, and encoding as coordinates for a model."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from nnlo_lib.config import Experiment
from nnlo_lib.config.space import SpaceConfig as Settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space.space import SearchSpace, base_point, nested

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.sampled_from(["a", "b", "1", "None"])
)
SEEDS = st.integers(0, 1000)


def space(**dimensions: Any) -> SearchSpace:
    return SearchSpace(TypeAdapter(Settings).validate_python(dimensions))


def drawn(found: SearchSpace, seed: int, count: int = 1) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    return [found.sample(generator) for _ in range(count)]


@st.composite
def dimensions(draw: Any, finite: bool = False) -> dict[str, Any]:
    """Draw a `search.space` section in which keys may depend on other keys."""
    found: dict[str, Any] = {}
    for key in "abcde"[: draw(st.integers(1, 5))]:
        low = draw(st.integers(1, 5))
        kinds = [
            {"choice": draw(st.lists(SCALARS, min_size=1, max_size=4, unique_by=repr))},
            {"constant": draw(SCALARS)},
            {"integer": [low, low + draw(st.integers(1, 3))]},
            {"log_integer": [low, low + draw(st.integers(1, 3))]},
            {"uniform": [-2.5, 7]},
            {"log_uniform": [1e-5, 3.0]},
        ]
        dimension = draw(st.sampled_from(kinds[:4] if finite else kinds))
        listed = {other: values(each) for other, each in found.items() if values(each)}
        for other in draw(st.sets(st.sampled_from(sorted(listed)), max_size=2)) if listed else []:
            wanted = draw(st.lists(st.sampled_from(listed[other]), min_size=1, max_size=2))
            dimension.setdefault("when", {})[other] = wanted
        found[key] = dimension
    keys = draw(st.permutations(sorted(found)))
    return {key: found[key] for key in keys}


def values(dimension: dict[str, Any]) -> list[Any]:
    """Return the possible values of a dimension; an empty list for real numbers."""
    for kind in ("integer", "log_integer"):
        if kind in dimension:
            return list(range(dimension[kind][0], dimension[kind][1] + 1))
    return [dimension["constant"]] if "constant" in dimension else dimension.get("choice", [])


def same(one: Any, other: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return one == other if numbers else repr(one) == repr(other)


def matters(key: str, chosen: dict[str, Any], given: dict[str, Any]) -> bool:
    """Return True if a key of the `search.space` section is active, by the definition in the documentation."""
    return all(
        matters(other, chosen, given) and any(same(chosen[other], each) for each in wanted)
        for other, wanted in given[key].get("when", {}).items()
    )


@given(dimensions(), SEEDS)
def test_a_point_has_plain_values_of_the_keys_that_matter_and_no_other(
    given: dict[str, Any], seed: int
) -> None:
    found = space(**given)
    (point,) = drawn(found, seed)
    chosen = {key: point.get(key, object()) for key in given}
    assert list(point) == [key for key in given if matters(key, chosen, given)]
    assert repr(json.loads(json.dumps(point))) == repr(point)
    for key, value in point.items():
        if listed := values(given[key]):
            assert repr(value) in map(repr, listed)
        else:
            low, high = given[key].get("uniform") or given[key]["log_uniform"]
            assert type(value) is float
            assert low <= value <= high
    assert point in found
    assert found.drop_inactive(point) == point
    assert point | {"elsewhere": 1} not in found
    assert all({k: v for k, v in point.items() if k != key} not in found for key in point)
    assert all(point | {key: "never"} not in found for key in point)


@given(dimensions(), SEEDS)
def test_encode_and_decode(given: dict[str, Any], seed: int) -> None:
    found = space(**given)
    one, other = drawn(found, seed, 2)
    assert found.encode(one).shape == found.encode(other).shape
    assert ((found.encode(one) >= 0) & (found.encode(one) <= 1)).all()
    again = found.decode(found.encode(one))
    assert list(again) == list(one)
    for key, value in one.items():
        assert again[key] == pytest.approx(value) if type(value) is float else repr(again[key]) == repr(value)
    rows = np.random.default_rng(seed).random((7, len(given)))
    single = [found.encode(found.point_at(row)) for row in rows]
    assert found.coordinates(rows) == pytest.approx(np.array(single))


@settings(max_examples=50)
@given(dimensions(finite=True))
def test_size_and_points_of_a_finite_space(given: dict[str, Any]) -> None:
    """The points are the distinct elements of the full product after removal of inactive keys."""
    points = set()
    for combination in itertools.product(*(values(given[key]) for key in given)):
        chosen = dict(zip(given, combination, strict=True))
        points.add(repr({key: value for key, value in chosen.items() if matters(key, chosen, given)}))
    found = space(**given)
    listed = [repr(point) for point in found.points()]
    assert found.size == len(listed) == len(points)
    assert set(listed) == points


def test_no_end_of_points() -> None:
    assert space(a=[1, 2], lr={"uniform": [0, 1], "when": {"a": 1}}).size is None
    never = {"uniform": [0, 1], "when": {"a": 1, "b": 1}}
    assert space(a=[1, 2], b={"choice": [1, 2], "when": {"a": 2}}, lr=never).size == 3


def test_grid() -> None:
    found = space(
        lr={"log_uniform": [1e-4, 1]},
        few={"integer": [1, 3]},
        many={"integer": [0, 100], "when": {"few": 2}},
        flag=[True, None],
    )
    points = list(found.points(5))
    assert len(points) == len(set(map(repr, points))) == 5 * (1 + 5 + 1) * 2
    assert sorted({point["lr"] for point in points}) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1])
    assert {point["many"] for point in points if "many" in point} == {0, 25, 50, 75, 100}


def test_distributions() -> None:
    found = space(
        u={"uniform": [2, 5]},
        l={"log_uniform": [1e-6, 1e-1]},
        i={"integer": [-1, 3]},
        k={"log_integer": [1, 9]},
        c=["x", None, False],
    )
    points = drawn(found, 1, 4000)
    column = {key: [point[key] for point in points] for key in found.scales}
    assert stats.kstest(column["u"], stats.uniform(2, 3).cdf).pvalue > 0.001
    assert stats.kstest(column["l"], stats.loguniform(1e-6, 1e-1).cdf).pvalue > 0.001
    assert stats.chisquare([column["i"].count(value) for value in range(-1, 4)]).pvalue > 0.001
    assert stats.chisquare([column["c"].count(value) for value in ("x", None, False)]).pvalue > 0.001
    expected = [4000 * math.log((value + 1) / value) / math.log(10) for value in range(1, 10)]
    assert stats.chisquare([column["k"].count(value) for value in range(1, 10)], expected).pvalue > 0.001


def test_order_and_kinds_in_coordinates() -> None:
    """Numbers keep their order in one coordinate, names are one-hot, and constants have no coordinate."""
    found = space(n=[10, 1, 100], name=["a", "b", "c"], c=5)
    by_number = [found.encode({"n": n, "name": "a", "c": 5})[0] for n in (1, 10, 100)]
    assert by_number == sorted(by_number)
    names = [found.encode({"n": 1, "name": name, "c": 5})[1:] for name in "abc"]
    assert np.array_equal(names, np.eye(3))


@pytest.mark.parametrize(
    ("dimensions", "words"),
    [
        ({"momentum": {"uniform": [0, 1], "when": {"optimiser": "sgd"}}, "optimizer": ["sgd", "adam"]}, "'optimizer'?"),
        ({"momentum": {"uniform": [0, 1], "when": {"optimizer": "sdg"}}, "optimizer": ["sgd", "adam"]}, "'sgd'?"),
        ({"a": {"uniform": [0, 1], "when": {"n": [2, 7]}}, "n": {"integer": [1, 5]}}, "from 1 to 5"),
        ({"a": {"uniform": [0, 1], "when": {"flag": 1}}, "flag": [True, False]}, "cannot have the value 1"),
        ({"a": {"uniform": [0, 1], "when": {"lr": 0.1}}, "lr": {"uniform": [0, 1]}}, "choice"),
        ({"a": {"choice": [1], "when": {"b": 1}}, "b": {"choice": [1], "when": {"a": 1}}}, "cycle: "),
        ({"a": {"choice": [1], "when": {"a": 1}}}, "cycle: a -> a"),
    ],
)  # fmt: skip
def test_conditions_that_cannot_be(dimensions: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        space(**dimensions)
    assert words in str(error.value)


def test_lists_are_points_as_any_other_value() -> None:
    lists = [[64, 64], [128], [[1], []]]
    found = space(a={"choice": lists}, b=[1, 2])
    points = list(found.points())
    assert found.size == len(points) == 6
    for point in points:
        again = json.loads(json.dumps(point))
        assert again in found
        assert found.point_at(found.unit_row(again)) == point
    assert {"a": [64], "b": 1} not in found


@given(dimensions(), st.integers(2, 4))
@settings(deadline=None, max_examples=60)
def test_a_grid_has_as_many_points_as_are_counted(wanted: dict[str, Any], levels: int) -> None:
    found = space(**wanted)
    assert found.grid_size(levels) == sum(1 for _ in found.points(levels))


def test_nested_keeps_every_value_in_any_order() -> None:
    point = {"algorithm.name": "mine.py:Mine", "algorithm.args.scale": 0.5, "train.epochs": 3}
    for order in itertools.permutations(point):
        assert nested({key: point[key] for key in order}) == {
            "algorithm": {"name": "mine.py:Mine", "args": {"scale": 0.5}}, "train": {"epochs": 3}
        }  # fmt: skip


@pytest.mark.parametrize(
    ("searched", "settings", "point"),
    [
        ({"train.epochs": {"integer": [1, 9]}}, {"train": {"epochs": 4}}, {"train.epochs": 4}),
        ({"train.epochs": {"integer": [1, 9]}}, {"train": {"epochs": 40}}, None),
        ({"train.clip_norm": [None, 1.0]}, {}, {"train.clip_norm": None}),
        ({"model.args.hidden": [None, 8]}, {}, None),
        ({"model.args.hidden": [None, 8]}, {"model": {"args": {"hidden": 8}}}, {"model.args.hidden": 8}),
        (
            {"algorithm.name": ["allreduce", "average"], "algorithm.sync_every": {"choice": [1, 2], "when": {"algorithm.name": "average"}}},
            {},
            {"algorithm.name": "allreduce"},
        ),
    ],
    ids=["inside", "outside", "null", "argument that is not written", "argument", "inactive key"],
)  # fmt: skip
def test_the_point_of_the_experiments_own_settings(searched: Any, settings: Any, point: Any) -> None:
    experiment = Experiment.model_validate(settings | {"search": {"space": searched}})
    assert base_point(experiment) == point


@pytest.mark.parametrize(("lr", "on_grid"), [(1e-3, True), (2e-3, False)])
def test_a_grid_gets_no_other_points(lr: float, on_grid: bool) -> None:
    search = {"space": {"train.optimizer.lr": {"log_uniform": [1e-3, 1e-1]}}, "method": {"name": "grid"}}
    settings = {"train": {"optimizer": {"name": "sgd", "lr": lr}}, "search": search}
    assert (base_point(Experiment.model_validate(settings)) is not None) == on_grid
