"""Interface of sampling methods, and the sampler that proposes a method's first untried candidate."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.search.samplers.observations import Observations, observe, point_key
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import SearchPoint

MAX_RANDOM_DRAWS = 1000  # random points that are yielded before all points of a finite space


class Sampler(ABC):
    """Yields candidates in order of preference; a pure function of its arguments."""

    @classmethod
    def from_config(cls, config: Any, space: SearchSpace, search: SearchConfig) -> Self:
        """Return the method on a space.

        By default, the keys of `config` are keyword arguments of the class, after `space` and `search.seed`.

        Args:
            config: settings of `search.method`.
            space: the search space.
            search: settings of the search.
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


def sampling_rng(seed: int, purpose: str, *number: int) -> np.random.Generator:
    """Return the random number generator for a purpose of a search, or for one trial's proposal."""
    return np.random.default_rng(derive_seed(seed, f"search.{purpose}", *number))


def random_points(space: SearchSpace, random: np.random.Generator) -> Iterator[SearchPoint]:
    """Yield random points, and then all points of a finite space."""
    yield from (space.sample(random) for _ in range(MAX_RANDOM_DRAWS))
    if space.size is not None:
        yield from space.points()
