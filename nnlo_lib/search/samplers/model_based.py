"""Sequential model-based optimization: a model of the known values, and expected improvement over their best.

Jones et al. 1998, eq. 15. The fit includes points without a value with their predicted value (kriging
believer, Ginsbourger et al. 2010).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnlo_lib.search.samplers.acquisition_search import (
    LOCAL_SEARCH_STARTS,
    LOCAL_SEARCH_STEPS,
    NEIGHBORS_PER_START,
    local_search,
    perturbed_rows,
    scattered,
)
from nnlo_lib.search.samplers.base import Sampler, random_points, sampling_rng
from nnlo_lib.search.samplers.model_free import SobolSequence
from nnlo_lib.search.samplers.observations import Observations
from nnlo_lib.search.samplers.value_scaling import Scaling
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.trial import SearchPoint

UNIFORM_CANDIDATES = 1000
MAX_ENUMERATED_POINTS = 2000  # in finite spaces up to this size, every point is a candidate


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
        """Yield candidates by decreasing expected improvement.

        Args:
            number: number of the trial.
            observed: results so far.
            random: random number generator of this proposal.
        """
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
            seed: seed of the fit.
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
        return np.concatenate(
            [
                scattered(UNIFORM_CANDIDATES, best.shape[1], random),
                perturbed_rows(best, NEIGHBORS_PER_START, LOCAL_SEARCH_STEPS, random),
            ]
        )


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
