"""Sequential model-based optimization: a model of the known values, and expected improvement over their best.

Jones et al. 1998, eq. 15. The fit includes points without a value with their predicted value (kriging
believer, Ginsbourger et al. 2010).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnlo_lib.search.samplers.base import Observations, Sampler, Scaling, random_points, sampling_rng
from nnlo_lib.search.samplers.model_free import SobolSequence
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.trial import SearchPoint

UNIFORM_CANDIDATES = 1000
MAX_ENUMERATED_POINTS = 2000  # in finite spaces up to this size, every point is a candidate
# Each round searches near the best rows, with steps a third as long as in the previous round.
LOCAL_SEARCH_STARTS, NEIGHBORS_PER_START, LOCAL_SEARCH_ROUNDS = 5, 100, 3
LOCAL_SEARCH_STEPS = (0.1, 0.03, 0.01)  # standard deviations of moves, as shares of a range


class Predict(Protocol):
    """Return (n,) means and (n,) standard deviations at (n, coordinates)."""

    def __call__(self, coordinates: Array) -> tuple[Array, Array]: ...


class Fit(Protocol):
    """Fit a model to (n, coordinates) and (n,) values of mean 0 and variance 1; return its predictions."""

    def __call__(self, coordinates: Array, values: Array, seed: int) -> Predict: ...


@dataclass(frozen=True)
class ModelBased(Sampler):
    """Sampler with a Sobol sequence for the first `initial` trials, then with maximal expected improvement.

    The Sobol sequence continues while fewer than two different values are known.
    """

    space: SearchSpace
    seed: int
    initial: int
    fit: Fit
    scaling: Scaling

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        random = sampling_rng(self.seed, "model", number)
        # Equal values have no variance by which they could be standardized.
        if number < self.initial or len({value for _, value in observed.evaluated}) < 2:
            yield from SobolSequence(self.space, self.seed)(number, observed)
        else:
            yield from self._promising(number, observed, random)
            yield from random_points(self.space, random)

    def _promising(
        self, number: int, observed: Observations, random: np.random.Generator
    ) -> Iterator[SearchPoint]:
        """Yield candidates for trial `number` by decreasing expected improvement."""
        evaluated_rows = np.array([self.space.unit_row(point) for point, _ in observed.evaluated])
        values = self.scaling(number, np.array([value for _, value in observed.evaluated]))
        predict = self._model(evaluated_rows, values, observed.pending, int(random.integers(2**31)))

        def improvement(rows: Array) -> Array:
            return expected_improvement(*predict(self.space.coordinates(rows)), best=values.min())

        best = evaluated_rows[np.argsort(values, kind="stable")[:LOCAL_SEARCH_STARTS]]
        candidates = local_search(improvement, self._candidates(best, random), random)
        yield from (self.space.point_at(each) for each in candidates)

    def _model(self, rows: Array, values: Array, pending: Sequence[SearchPoint], seed: int) -> Predict:
        """Fit the evaluated rows; if points are pending, fit again with their predicted values added.

        Args:
            rows: (n, keys) positions of the evaluated points in the unit cube.
            values: (n,) scaled values; smaller is better.
            pending: points without a value.
        """
        coordinates = self.space.coordinates(rows)
        predict = self.fit(coordinates, values, seed)
        if not pending:
            return predict
        pending_coordinates = self.space.coordinates(
            np.array([self.space.unit_row(point) for point in pending])
        )
        predicted, _ = predict(pending_coordinates)
        all_coordinates = np.concatenate([coordinates, pending_coordinates])
        return self.fit(all_coordinates, np.concatenate([values, predicted]), seed)

    def _candidates(self, best: Array, random: np.random.Generator) -> Array:
        if self.space.size is not None and self.space.size <= MAX_ENUMERATED_POINTS:
            return np.array([self.space.unit_row(point) for point in self.space.points()])
        scattered = random.random((UNIFORM_CANDIDATES, best.shape[1]))
        return np.concatenate(
            [scattered, perturbed_rows(best, NEIGHBORS_PER_START, LOCAL_SEARCH_STEPS, random)]
        )


def local_search(score: Callable[[Array], Array], rows: Array, random: np.random.Generator) -> Array:
    """Return the rows and neighbors of the best rows, by decreasing score.

    Args:
        score: returns (n,) scores of (n, keys) rows.
        rows: (n, keys) positions in the unit cube.
    """
    scores = score(rows)
    for round_ in range(LOCAL_SEARCH_ROUNDS):
        # A stable sort orders equal scores reproducibly.
        top = rows[np.argsort(-scores, kind="stable")[:LOCAL_SEARCH_STARTS]]
        near = perturbed_rows(
            top, NEIGHBORS_PER_START, tuple(step / 3**round_ for step in LOCAL_SEARCH_STEPS), random
        )
        rows, scores = np.concatenate([rows, near]), np.concatenate([scores, score(near)])
    return rows[np.argsort(-scores, kind="stable")]


def perturbed_rows(rows: Array, each: int, steps: tuple[float, ...], random: np.random.Generator) -> Array:
    """Return neighbors of each row: some keys move by a small step, a few are redrawn.

    Args:
        rows: (n, keys) positions in the unit cube; NaN is replaced by a random position.
        each: number of neighbors per row.
        steps: standard deviations of the moves, as shares of a range; one of them is drawn for each neighbor.
    """
    keys = rows.shape[1]
    near = np.repeat(rows, each, axis=0)
    near = np.where(np.isnan(near), random.random(near.shape), near)
    moved = random.random(near.shape) < max(1 / keys, 0.4)
    # At least one key moves; otherwise a neighbor could equal the row.
    moved[np.arange(len(near)), random.integers(0, keys, len(near))] = True
    step = random.choice(steps, (len(near), 1))
    # Positions are in [0, 1): the upper end belongs to no cell of a list.
    moves = np.clip(near + step * random.standard_normal(near.shape), 0, np.nextafter(1, 0))
    redrawn = random.random(near.shape) < 0.5 / keys
    return np.where(redrawn, random.random(near.shape), np.where(moved, moves, near))


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return E[max(best - f, 0)] for normal f (Jones et al. 1998, eq. 15).

    Args:
        mean: (n,) means of f.
        deviation: (n,) standard deviations of f.
        best: smallest known value.
    """
    from scipy.special import ndtr

    # The deviation is 0 where all trees agree, such as at known points.
    deviation = np.maximum(deviation, 1e-9)
    z = (best - mean) / deviation
    return np.asarray(deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)))
