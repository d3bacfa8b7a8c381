"""Interface of samplers, and the results so far in their form."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from nnlo_lib.config.search import DEFAULT_TRIALS, SearchConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.search.pareto import weighted_values
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import SearchPoint, Trial

MAX_RANDOM_DRAWS = 1000  # random points that are yielded before all points of a finite space


@dataclass(frozen=True)
class Observations:
    """Points of a search with and without values.

    Attributes:
        evaluated: points and their values; smaller is better.
        pending: points without a value.
        tried_keys: `point_key` of every trial's point.
        memo: what a sampler has computed from `evaluated` alone, such as a fitted model. It is kept while no trial gets a
            value: of several trials that are proposed one after another, only the first needs the fit.
    """

    evaluated: Sequence[tuple[SearchPoint, float]]
    pending: Sequence[SearchPoint]
    tried_keys: frozenset[str]
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


class Sampler(ABC):
    """Yields candidates in order of preference; a pure function of its arguments."""

    # If False, `evaluated` and `pending` are empty: of 10,000 trials, to collect them takes 20 ms.
    uses_values: ClassVar[bool] = True

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
    earlier: Sequence[tuple[SearchPoint, float]] = ()  # results of `search.known`

    def __call__(self, number: int, known: StudySnapshot) -> SearchPoint | None:
        with_values = self.method.uses_values
        observed = observe(self.space, known, self.earlier) if with_values else tried(self.space, known)
        # To the method, they are trials before the first one.
        candidates = self.method(len(self.earlier) + number, observed)
        return next((point for point in candidates if point_key(point) not in observed.tried_keys), None)


def build_sampler(search: SearchConfig) -> UntriedPointSampler:
    """Return the sampler of `search.method`. Raises UserError if the space cannot be searched."""
    space, kind = SearchSpace(search.space), load_implementation(search.method.reference)
    earlier: Sequence[tuple[SearchPoint, float]] = ()
    if search.known is not None:
        # Imported here, because most searches have no table to read.
        from nnlo_lib.search.best import read_known

        earlier = read_known(search)
        search = search.model_copy(update={"trials": (search.trials or DEFAULT_TRIALS) + len(earlier)})
    method: Sampler = kind.from_config(search.method, space, search)
    return UntriedPointSampler(space, method, earlier)


def point_key(point: SearchPoint) -> str:
    """Return a string that is equal for two points only if their values and types are equal."""
    return repr(sorted((key, repr(value)) for key, value in point.items()))


def observe(
    space: SearchSpace, known: StudySnapshot, earlier: Sequence[tuple[SearchPoint, float]] = ()
) -> Observations:
    """Return the points of all trials, with their values at the rung on which a model is based.

    A failed trial has the worst value at this rung: proposals then avoid its neighborhood, and the scale of
    the values does not change. Trials that have values only at lower rungs, and points that the space no
    longer contains, are omitted. `earlier`: points and values of complete trainings of another search.
    """
    only_tried = tried(space, known)
    inside = [
        trial for trial, (_, is_inside) in zip(known.trials, known.memo[space], strict=False) if is_inside
    ]
    # The weights of several objectives differ from proposal to proposal, and with them the one value of each trial.
    several = len(known.search.objectives) > 1
    if several or known.value_memo.get(space, [None])[0] is not earlier:
        epochs = rung(known, len(space.free) + 2, len(earlier))
        used = earlier if epochs == known.epochs else ()
        values = [*used, *(_values_of_several if several else _values_of_one)(known, inside, epochs)]
        worst = max((value for _, value in values if math.isfinite(value)), default=None)
        # A failed trial has an infinite value, which no model can be fitted to.
        evaluated = [(point, min(value, worst)) for point, value in values if worst is not None]
        known.value_memo[space] = earlier, evaluated, {}
    _, evaluated, memo = known.value_memo[space]
    pending = [trial.point for trial in inside if not known.facts[trial.number].has_value]
    return replace(only_tried, evaluated=evaluated, pending=pending, memo=memo)


def _values_of_one(
    known: StudySnapshot, trials: Sequence[Trial], epochs: int
) -> Iterator[tuple[SearchPoint, float]]:
    for trial in trials:
        facts = known.facts[trial.number]
        value = math.inf if facts.has_failed else facts.means.get(epochs)
        # Only a mean over some folds needs more than the facts of the trial.
        value = known.mean_value(trial.number, epochs) if value != value else value
        if value is not None:
            yield trial.point, value


def _values_of_several(
    known: StudySnapshot, trials: Sequence[Trial], epochs: int
) -> Iterator[tuple[SearchPoint, float]]:
    """Yield points with one value for all objectives, with other weights for each proposal; infinite for failures."""
    vectors = {
        trial.number: (math.inf,)
        if known.has_failed(trial.number)
        else known.mean_values(trial.number, epochs)
        for trial in trials
    }
    valid = {number: each for number, each in vectors.items() if each and math.inf not in each}
    weighted = weighted_values(valid, sampling_rng(known.search.seed, "weights", len(known.trials)))
    for trial in trials:
        if vectors[trial.number]:
            yield trial.point, weighted.get(trial.number, math.inf)


def tried(space: SearchSpace, known: StudySnapshot) -> Observations:
    """Return the keys of all trials' points alone."""
    # A trial keeps its point: its key, and whether the space contains it, are computed once in a search.
    keys: list[tuple[str, bool]] = known.memo.setdefault(space, [])
    keys += [(point_key(trial.point), trial.point in space) for trial in known.trials[len(keys) :]]
    return Observations((), (), frozenset(key for key, _ in keys[: len(known.trials)]))


def rung(known: StudySnapshot, enough: int, complete: int = 0) -> int:
    """Return the highest rung with `enough` values, or else the rung with most (Falkner et al. 2018).

    `complete`: number of values of complete trainings of another search.
    """
    counts = {known.epochs: complete} if complete else {}
    for facts in known.facts:
        for epochs, value in facts.means.items():
            counts[epochs] = counts.get(epochs, 0) + (value is not None and value != math.inf)
    return max(counts, key=lambda epochs: (min(counts[epochs], enough), epochs), default=known.epochs)


def sampling_rng(seed: int, purpose: str, *number: int) -> np.random.Generator:
    """Return the random number generator for a purpose of a search, or for one trial's proposal."""
    return np.random.default_rng(derive_seed(seed, f"search.{purpose}", *number))


def random_points(space: SearchSpace, random: np.random.Generator) -> Iterator[SearchPoint]:
    """Yield random points, and then all points of a finite space."""
    yield from (space.sample(random) for _ in range(MAX_RANDOM_DRAWS))
    if space.size is not None:
        yield from space.points()
