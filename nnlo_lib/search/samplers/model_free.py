"""Samplers without a model: independent draws, a Sobol sequence, a grid, and a genetic search."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from nnlo_lib.config.search import DEFAULT_TRIALS, GeneticSamplerConfig, GridSamplerConfig, SearchConfig
from nnlo_lib.search.samplers.base import Observations, Sampler, random_points, sampling_rng
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.trial import SearchPoint

SOBOL_CANDIDATES = 64  # points per proposal, because earlier trials may have the first ones
MAX_CHILDREN = 100  # candidates per proposal, as a child may equal an earlier trial


@dataclass(frozen=True)
class RandomDraws(Sampler):
    """Independent draws (Bergstra and Bengio 2012)."""

    uses_values = False

    space: SearchSpace
    seed: int

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        return random_points(self.space, sampling_rng(self.seed, "random", number))


@dataclass(frozen=True)
class SobolSequence(Sampler):
    """A scrambled Sobol sequence (Owen 1998): the candidates of trial n start at point n."""

    uses_values = False

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

    uses_values = False

    space: SearchSpace
    levels: int

    @classmethod
    def from_config(cls, config: GridSamplerConfig, space: SearchSpace, search: SearchConfig) -> Self:
        return cls(space, config.levels)

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        return self.space.points(self.levels)


@dataclass(frozen=True)
class GeneticSearch(Sampler):
    """The genetic search of NNLO in steady-state form: no generation waits for its slowest trial.

    The parents are the winners of two tournaments of two among the best `population` trials so far. Heuristic
    crossover (Wright 1991) continues from the worse parent through the better one. Non-uniform mutation
    (Michalewicz 1992) changes every gene, by decreasing amounts toward the end of the search.
    """

    space: SearchSpace
    seed: int
    population: int  # number of best trials that can be parents; the first `population` trials are random
    trials: int  # number of trials after which mutation ends

    @classmethod
    def from_config(cls, config: GeneticSamplerConfig, space: SearchSpace, search: SearchConfig) -> Self:
        return cls(space, search.seed, config.population, search.trials or DEFAULT_TRIALS)

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        random = sampling_rng(self.seed, "genetic", number)
        if number >= self.population and len(observed.evaluated) > 1:
            ranked = sorted(observed.evaluated, key=lambda each: each[1])[: self.population]
            parents = np.array([self.space.unit_row(point) for point, _ in ranked])
            progress = min(number / self.trials, 1)
            yield from (
                self.space.point_at(self._child(parents, progress, random)) for _ in range(MAX_CHILDREN)
            )
        yield from random_points(self.space, random)

    def _child(self, parents: Array, progress: float, random: np.random.Generator) -> Array:
        # Parents are ordered by value, so the smaller index is the better parent.
        better, worse = parents[sorted(int(random.integers(0, len(parents), 2).min()) for _ in range(2))]
        # Genes that are inactive (NaN) in one parent are taken from the other parent, or else drawn.
        better = np.where(np.isnan(better), worse, better)
        better = np.where(np.isnan(better), random.random(len(better)), better)
        worse = np.where(np.isnan(worse), better, worse)
        # Positions of list values have no direction; the better parent's are kept.
        crossed = better + random.random() * np.where(self._lists, 0, better - worse)
        return self._mutated(np.clip(crossed, 0, 1), progress, random)

    def _mutated(self, row: Array, progress: float, random: np.random.Generator) -> Array:
        """Return a mutated row; with r uniform in [0, 1), the strength is u = 1 - r^((1 - progress)^3).

        Numbers move by the fraction u of the distance to a random bound; list values are redrawn with
        probability u.

        Args:
            row: (keys,) position in the unit cube.
            progress: part of the search that is done, from 0 to 1.
        """
        step = 1 - random.random(len(row)) ** (1 - progress) ** 3
        bound = random.integers(0, 2, len(row))
        drawn = np.where(random.random(len(row)) < step, random.random(len(row)), row)
        return np.where(self._lists, drawn, row + step * (bound - row))

    @property
    def _lists(self) -> Array:
        return np.array([each.width != 1 for each in self.space.scales.values()])
