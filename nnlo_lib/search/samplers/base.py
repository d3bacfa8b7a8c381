"""Interface of samplers, the results so far in their form, and the scaling of values for models."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.search.pareto import weighted_values
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import SearchPoint

# Trial number, (n,) values -> (n,) values with mean 0 and variance of about 1.
Scaling = Callable[[int, Array], Array]
MAX_RANDOM_DRAWS = 1000  # random points that are yielded before all points of a finite space


@dataclass(frozen=True)
class Observations:
    """Points of a search with and without values.

    Attributes:
        evaluated: points and their values; smaller is better.
        pending: points without a value.
        tried_keys: `point_key` of every trial's point.
    """

    evaluated: Sequence[tuple[SearchPoint, float]]
    pending: Sequence[SearchPoint]
    tried_keys: frozenset[str]


class Sampler(ABC):
    """Yields candidates in order of preference; a pure function of its arguments."""

    @classmethod
    def from_config(cls, config: Any, space: SearchSpace, search: SearchConfig) -> Self:
        """Return the method on a space.

        By default, the keys of `config` (`search.method`) are keyword arguments of the class, after `space` and
        `search.seed`.
        """
        return cls(space, search.seed, **config.arguments)  # type: ignore[call-arg]

    @abstractmethod
    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        """Yield candidates for trial `number`."""


@dataclass(frozen=True)
class UntriedPointSampler:
    """Proposes a point for trial `number` that no trial has; None if the method yields no such point."""

    space: SearchSpace
    method: Sampler

    def __call__(self, number: int, known: StudySnapshot) -> SearchPoint | None:
        observed = observe(self.space, known)
        candidates = self.method(number, observed)
        return next((point for point in candidates if point_key(point) not in observed.tried_keys), None)


def build_sampler(search: SearchConfig) -> UntriedPointSampler:
    """Return the sampler of `search.method`. Raises UserError if the space cannot be searched."""
    space, kind = SearchSpace(search.space), load_implementation(search.method.reference)
    method: Sampler = kind.from_config(search.method, space, search)
    return UntriedPointSampler(space, method)


def point_key(point: SearchPoint) -> str:
    """Return a string that is equal for two points only if their values and types are equal."""
    return repr(sorted((key, repr(value)) for key, value in point.items()))


def observe(space: SearchSpace, known: StudySnapshot) -> Observations:
    """Return the points of all trials, with their values at the rung on which a model is based.

    A failed trial has the worst value at this rung: proposals then avoid its neighborhood, and the scale of
    the values does not change. Several objectives give one value, with other weights for each proposal. Trials that have values only at lower rungs, and points that the space no
    longer contains, are omitted.
    """
    tried = frozenset(point_key(trial.point) for trial in known.trials)
    inside = [trial for trial in known.trials if trial.point in space]
    epochs = rung(known, len(space.free) + 2)
    values = {
        trial.number: (math.inf,)
        if known.has_failed(trial.number)
        else known.mean_values(trial.number, epochs)
        for trial in inside
    }
    valid = {number: each for number, each in values.items() if each and math.inf not in each}
    if len(known.search.objectives) > 1:
        one = weighted_values(valid, sampling_rng(known.search.seed, "weights", len(known.trials)))
    else:
        one = {number: each[0] for number, each in valid.items()}
    # A failed trial has an infinite value, which no model can be fitted to.
    worst = max(one.values(), default=math.nan)
    evaluated = [
        (trial.point, one.get(trial.number, worst)) for trial in inside if one and values[trial.number]
    ]
    pending = [trial.point for trial in inside if known.final_value(trial.number) is None]
    return Observations(evaluated, pending, tried)


def rung(known: StudySnapshot, enough: int) -> int:
    """Return the highest rung with `enough` values, or else the rung with most (Falkner et al. 2018)."""
    counts: dict[int, int] = {}
    for trial in known.trials:
        for epochs in known.rungs(trial.number):
            value = known.mean_value(trial.number, epochs)
            counts[epochs] = counts.get(epochs, 0) + (value is not None and math.isfinite(value))
    return max(counts, key=lambda epochs: (min(counts[epochs], enough), epochs), default=known.epochs)


def sampling_rng(seed: int, purpose: str, *number: int) -> np.random.Generator:
    """Return the random number generator for a purpose of a search, or for one trial's proposal."""
    return np.random.default_rng(derive_seed(seed, f"search.{purpose}", *number))


def random_points(space: SearchSpace, random: np.random.Generator) -> Iterator[SearchPoint]:
    """Yield random points, and then all points of a finite space."""
    yield from (space.sample(random) for _ in range(MAX_RANDOM_DRAWS))
    if space.size is not None:
        yield from space.points()


def standardized(number: int, values: Array) -> Array:
    """Return the values scaled to mean 0 and variance 1."""
    return np.asarray((values - values.mean()) / values.std())


def ranked(number: int, values: Array) -> Array:
    """Return the normal quantiles of the ranks (Salinas et al. 2020), so that bad values have less effect."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def in_turn(number: int, values: Array) -> Array:
    """Return `ranked` values for odd trial numbers and `standardized` values for even ones.

    Ranks resolve small differences between good values; values show whether a difference exceeds the noise.
    """
    return (ranked if number % 2 else standardized)(number, values)
