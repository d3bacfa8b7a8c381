"""Search space: points, their positions in the unit cube, their coordinates for a model, and their number.

A key with `when` conditions is active only if other searched keys have certain values.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config import Experiment
from nnlo_lib.config.base import suggest_name, value_at
from nnlo_lib.config.search import GridSamplerConfig, PopulationConfig, SearchConfig
from nnlo_lib.config.space import DimensionConfig, Scalar
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space.scales import Array, Choice, Integer, Scale, scale
from nnlo_lib.search.study.trial import SearchPoint

Conditions = dict[str, dict[str, frozenset[int]]]  # key -> other key -> positions of the activating values
INACTIVE_COORDINATE = 0.5  # coordinate of an inactive key; if the key has several coordinates, all are 0


class SearchSpace:
    """The searched keys with their scales and with the conditions under which they are active.

    A *row* is a position in the unit cube: one number per key in the given order, NaN if the key is inactive.
    UserError is raised if a condition can never hold or the conditions form a cycle.
    """

    def __init__(self, dimensions: Mapping[str, DimensionConfig]) -> None:
        self.scales = {key: scale(dimension) for key, dimension in dimensions.items()}
        self._when = conditions(dimensions, self.scales)
        self._order = in_order(self._when)
        self._columns = {key: column for column, key in enumerate(self.scales)}

    @property
    def free(self) -> list[str]:
        """Keys with more than one value."""
        return [key for key, each in self.scales.items() if each.count > 1]

    @cached_property
    def size(self) -> int | None:
        """Number of different points; None if it is infinite."""
        total = self._count({key: each.count for key, each in self.scales.items()}, None)
        return None if math.isinf(total) else int(total)

    def grid_size(self, levels: int) -> int:
        """Return the number of points of a grid with this number of levels per range."""
        return int(self._count({key: len(each.levels(levels)) for key, each in self.scales.items()}, levels))

    def sample(self, generator: np.random.Generator) -> SearchPoint:
        """Return a random point."""
        return self.point_at(generator.random(len(self.scales)))

    def points(self, levels: int | None = None) -> Iterator[SearchPoint]:
        """Yield the points of a grid with this number of levels per range; None: all of a finite space."""
        for point in self._grow(self._order, levels):
            yield {key: point[key] for key in self.scales if key in point}

    def drop_inactive(self, values: Mapping[str, Any]) -> SearchPoint:
        """Return the point of the active keys in `values`; constants that are missing are added."""
        point: SearchPoint = {}
        for key in self._order:
            if self._is_active(key, point) and (key in values or self.scales[key].count == 1):
                point[key] = values.get(key, self.scales[key].value_at(0))
        return {key: point[key] for key in self.scales if key in point}

    def point_at(self, row: Array) -> SearchPoint:
        """Return the point at a position in the unit cube."""
        places = zip(self.scales.items(), np.nan_to_num(row, nan=0.5), strict=True)
        return self.drop_inactive({key: each.value_at(float(place)) for (key, each), place in places})

    def unit_row(self, point: SearchPoint) -> Array:
        """Return the position of a point in the unit cube; NaN for inactive keys."""
        places = [
            each.quantile_of(point[key]) if key in point else math.nan for key, each in self.scales.items()
        ]
        return np.array(places)

    def __contains__(self, point: SearchPoint) -> bool:
        """Return True if the point can be proposed: exactly the active keys, each with a valid value."""
        known = all(
            key in self.scales and not math.isnan(self.scales[key].quantile_of(point[key])) for key in point
        )
        return known and all((key in point) == self._is_active(key, point) for key in self._order)

    def coordinates(self, rows: Array) -> Array:
        """Return a model's input for (n, keys) rows: (n, coordinates) in [0, 1]."""
        active, parts = self._active_masks(rows), [np.zeros((len(rows), 0))]
        for column, (key, each) in enumerate(self.scales.items()):
            values = each.coordinates(np.where(active[key], rows[:, column], math.nan))
            parts.append(np.nan_to_num(values, nan=INACTIVE_COORDINATE if each.width == 1 else 0.0))
        return np.concatenate(parts, axis=1)

    @cached_property
    def columns(self) -> list[slice]:
        """Coordinates of each key that has any: all keys but constants."""
        ends = np.cumsum([each.width for each in self.scales.values()])
        return [
            slice(end - each.width, end)
            for end, each in zip(ends, self.scales.values(), strict=True)
            if each.width
        ]

    def encode(self, point: SearchPoint) -> Array:
        """Return the coordinates of a point."""
        return self.coordinates(self.unit_row(point)[None]).ravel()

    def decode(self, coordinates: Array) -> SearchPoint:
        """Return the point with these coordinates, or the nearest point."""
        widths = [each.width for each in self.scales.values()]
        parts = np.split(coordinates, np.cumsum(widths)[:-1])
        return self.point_at(np.array([part[0] if len(part) == 1 else _middle(part) for part in parts]))

    def _count(self, counts: Mapping[str, float], levels: int | None) -> float:
        """Return the number of points; `counts` holds the number of values of each key."""
        # Only keys on which conditions depend are enumerated; the counts of the others are multiplied.
        switches = {other for others in self._when.values() for other in others}
        rest = self.scales.keys() - switches
        choices = self._grow([key for key in self._order if key in switches], levels)
        return sum(math.prod(counts[key] for key in rest if self._is_active(key, point)) for point in choices)

    def _is_active(self, key: str, point: SearchPoint) -> bool:
        return all(
            other in point and self._ranked(other).rank(point[other]) in wanted
            for other, wanted in self._when[key].items()
        )

    def _active_masks(self, rows: Array) -> dict[str, NDArray[np.bool_]]:
        """Return for each key a mask of the rows in which it is active."""
        active: dict[str, NDArray[np.bool_]] = {}
        for key in self._order:
            active[key] = ~np.isnan(rows[:, self._columns[key]])
            for other, wanted in self._when[key].items():
                ranks = self._ranked(other).ranks(rows[:, self._columns[other]])
                active[key] &= active[other] & np.isin(ranks, list(wanted))
        return active

    def _ranked(self, key: str) -> Integer | Choice:
        ranked = self.scales[key]
        assert isinstance(ranked, Integer | Choice)
        return ranked

    def _grow(
        self, keys: Sequence[str], levels: int | None, point: SearchPoint | None = None
    ) -> Iterator[SearchPoint]:
        """Yield all points of some keys, each after the keys that it depends on, with the values of those before in `point`."""
        point = point or {}
        if not keys:
            yield point
            return
        key, *rest = keys
        values = self.scales[key].levels(levels) if self._is_active(key, point) else None
        # An inactive key has no value but must not end the recursion.
        for value in values or [None]:
            yield from self._grow(rest, levels, point | {key: value} if values else point)


def _middle(one_hot: Array) -> float:
    # A constant has no coordinate.
    return (int(one_hot.argmax()) + 0.5) / len(one_hot) if len(one_hot) else 0.5


def conditions(dimensions: Mapping[str, DimensionConfig], scales: Mapping[str, Scale]) -> Conditions:
    """Return the `when` conditions of all keys. Raises UserError if a condition can never hold."""
    found: Conditions = {}
    for key, dimension in dimensions.items():
        found[key] = {}
        for other, wanted in dimension.when.items():
            if other not in scales:
                raise UserError(_at(key, other) + f"is not searched; {suggest_name(other, scales)}")
            values = wanted if isinstance(wanted, tuple) else (wanted,)
            found[key][other] = frozenset(_rank(key, other, value, scales[other]) for value in values)
    return found


def in_order(found: Conditions) -> list[str]:
    """Return all keys, each after the keys that it depends on. Raises UserError if there is a cycle."""
    try:
        # Sorted, so that the order of the keys in a `when` condition has no effect.
        return list(TopologicalSorter({key: sorted(others) for key, others in found.items()}).static_order())
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise UserError(
            f"search.space: the `when` conditions form a cycle: {cycle}; remove one of them"
        ) from None


def _rank(key: str, other: str, value: Scalar, scale: Scale) -> int:
    if not isinstance(scale, Integer | Choice):
        raise UserError(
            _at(key, other) + "is a range of real numbers; use `choice`, `integer` or `log_integer` for it"
        )
    rank = scale.rank(value)
    if rank is None:
        known = (
            f"use a value from {scale.low} to {scale.high}"
            if isinstance(scale, Integer)
            else suggest_name(str(value), map(str, scale.values))
        )
        raise UserError(_at(key, other) + f"cannot have the value {value!r}; {known}")
    return rank


def _at(key: str, other: str) -> str:
    return f"search.space: '{key}' has a `when` condition on '{other}', but '{other}' "


def base_point(experiment: Experiment) -> SearchPoint | None:
    """Return the point of the experiment's own settings; None if the space, or its grid, does not have it."""
    search = experiment.search
    assert search is not None, "the experiment has no `search:` section"
    space, point = SearchSpace(search.space), _completed(experiment, {})
    if point not in space:
        return None
    if isinstance(search.method, GridSamplerConfig) and point not in space.points(search.method.levels):
        return None
    return point


def _completed(experiment: Experiment, given: SearchPoint) -> SearchPoint:
    """Return a point with the experiment's own values of the keys that it leaves out."""
    assert experiment.search is not None, "the experiment has no `search:` section"
    space, settings = SearchSpace(experiment.search.space), experiment.model_dump(mode="json")
    values = {key: value_at(settings, *key.split(".")) for key in space.scales}
    # An argument that is not written has the default of the model's function, which is not known here.
    written = {
        key: value for key, value in values.items() if value is not None or not key.startswith("model.args.")
    }
    return space.drop_inactive(written | given)


def first_points(experiment: Experiment) -> list[SearchPoint]:
    """Return the points of the first trials: that of the experiment's own settings, and those of `search.start`.

    Raises UserError if a point of `search.start` is not in the space.
    """
    search, base = experiment.search, base_point(experiment)
    assert search is not None, "only an experiment with a search has points"
    space, found = SearchSpace(search.space), [] if base is None else [base]
    for given in search.start:
        point = _completed(experiment, given)
        if unknown := sorted(given.keys() - point.keys()):
            why = "is not active in this point" if unknown[0] in space.scales else "is not searched"
            raise UserError(f"search.start: {unknown[0]} {why}; remove it from {given}")
        for key, dimension in search.space.items():
            if key in point and math.isnan(space.scales[key].quantile_of(point[key])):
                own = (
                    "" if key in given else ", the experiment's own value; give the point a value of this key"
                )
                values = f"{dimension.kind} {getattr(dimension, dimension.kind)}"
                raise UserError(f"search.start: {key}: {point[key]!r} is outside of {values}{own}")
        if point not in space:
            missing = ", ".join(sorted(space.scales.keys() - point.keys()))
            raise UserError(
                f"search.start: {given} lacks {missing}, which the experiment does not set either"
            )
        # A point is tried once.
        found += [point] if point not in found else []
    return found


def nested(point: SearchPoint) -> dict[str, Any]:
    """Turn `{a.b: 1}` into `{a: {b: 1}}`; the order of the keys does not matter."""

    def union(one: Any, other: Any) -> Any:
        """Return both mappings in one; unlike in merge_settings, a later `name` does not discard earlier keys."""
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return other
        return one | {key: union(one[key], value) if key in one else value for key, value in other.items()}

    found: dict[str, Any] = {}
    for key, value in point.items():
        found = union(found, reduce(lambda inner, part: {part: inner}, reversed(key.split(".")), value))
    return found


def count_distinct_points(search: SearchConfig) -> int | None:
    """Return the number of points that the method of a search can propose; None if it is infinite."""
    space, method = SearchSpace(search.space), search.method
    return space.grid_size(method.levels) if isinstance(method, GridSamplerConfig) else space.size


def count_trials(search: SearchConfig) -> int:
    """Return the number of trials of a whole search: its limit, or all points that it can propose if these are fewer."""
    if isinstance(search.fidelity, PopulationConfig):
        return (
            search.fidelity.population
        )  # each is trained for all epochs, the last ones by the trial that replaces it
    bounds = [each for each in (search.trial_limit, count_distinct_points(search)) if each is not None]
    # Of the others, only a grid has no limit, and its points can be counted.
    return min(bounds)
