"""Methods that do not learn: independent draws, a Sobol sequence, a grid."""

from collections.abc import Iterator
from dataclasses import dataclass

from nnlo_lib.search.proposers.observations import Observations
from nnlo_lib.search.proposers.proposer import anywhere, generator
from nnlo_lib.search.space import Space
from nnlo_lib.search.trial import Point

NEXT = 64  # of the sequence, where a point was tried already


@dataclass(frozen=True)
class RandomDraws:
    """Independent draws (Bergstra and Bengio 2012)."""

    space: Space
    seed: int

    def __call__(self, number: int, observed: Observations) -> Iterator[Point]:
        return anywhere(self.space, generator(self.seed, "random", number))


@dataclass(frozen=True)
class SobolSequence:
    """A Sobol sequence, scrambled (Owen 1998): trial n has its n-th point."""

    space: Space
    seed: int

    def __call__(self, number: int, observed: Observations) -> Iterator[Point]:
        from scipy.stats import qmc

        sequence = qmc.Sobol(len(self.space.scales), rng=generator(self.seed, "sobol"))
        if number:  # scipy cannot go forward by nothing
            sequence.fast_forward(number)
        yield from (self.space.at(sequence.random(1)[0]) for _ in range(NEXT))
        yield from anywhere(self.space, generator(self.seed, "sobol", number))


@dataclass(frozen=True)
class GridPoints:
    """Every combination, the last key first; levels: of each range."""

    space: Space
    levels: int

    def __call__(self, number: int, observed: Observations) -> Iterator[Point]:
        return self.space.points(self.levels)
