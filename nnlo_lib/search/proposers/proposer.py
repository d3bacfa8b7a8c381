"""The first of a method's candidates that was not tried yet."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.proposers.observations import Observations, identity, observe
from nnlo_lib.search.space import Space
from nnlo_lib.search.trial import Point
from nnlo_lib.streams import stream

DRAWS = 1000  # before the points of a finite space are gone through one by one


class Method(Protocol):
    """Yields candidates, those that are wanted most first; a pure function of its arguments."""

    def __call__(self, number: int, observed: Observations) -> Iterator[Point]: ...


@dataclass(frozen=True)
class Proposer:
    """Proposes a point for trial `number` that no trial has; None if there is none left."""

    space: Space
    method: Method

    def __call__(self, number: int, known: Knowledge) -> Point | None:
        observed = observe(self.space, known)
        candidates = self.method(number, observed)
        return next((point for point in candidates if identity(point) not in observed.seen), None)


def generator(seed: int, purpose: str, *number: int) -> np.random.Generator:
    """Return the random numbers of a search, or of one trial's proposal."""
    return np.random.default_rng(stream(seed, f"search.{purpose}", *number))


def anywhere(space: Space, random: np.random.Generator) -> Iterator[Point]:
    """Yield points at random; in the end, all points of a finite space."""
    yield from (space.sample(random) for _ in range(DRAWS))
    if space.size is not None:
        yield from space.points()
