"""Sampling methods that use no results: independent draws, a Sobol sequence, a grid."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from nnlo_lib.config.search import GridSamplerConfig, SearchConfig
from nnlo_lib.search.samplers.base import Sampler, random_points, sampling_rng
from nnlo_lib.search.samplers.observations import Observations
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.trial import SearchPoint

SOBOL_CANDIDATES = 64  # points per proposal, because earlier trials may have the first ones


@dataclass(frozen=True)
class RandomDraws(Sampler):
    """Independent draws (Bergstra and Bengio 2012)."""

    space: SearchSpace
    seed: int

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        return random_points(self.space, sampling_rng(self.seed, "random", number))


@dataclass(frozen=True)
class SobolSequence(Sampler):
    """A scrambled Sobol sequence (Owen 1998): the candidates of trial n start at point n."""

    space: SearchSpace
    seed: int

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        from scipy.stats import qmc

        sequence = qmc.Sobol(len(self.space.scales), rng=sampling_rng(self.seed, "sobol"))
        if number:  # SciPy's fast_forward does not accept 0
            sequence.fast_forward(number)
        yield from (self.space.point_at(sequence.random(1)[0]) for _ in range(SOBOL_CANDIDATES))
        yield from random_points(self.space, sampling_rng(self.seed, "sobol", number))


@dataclass(frozen=True)
class GridPoints(Sampler):
    """Every combination of a grid, the last key varying fastest; `levels`: number of values per range."""

    space: SearchSpace
    levels: int

    @classmethod
    def from_config(cls, config: GridSamplerConfig, space: SearchSpace, search: SearchConfig) -> Self:
        return cls(space, config.levels)

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        return self.space.points(self.levels)
