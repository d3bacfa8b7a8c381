"""The default sampler: a Gaussian process of the known values, and expected improvement over their best.

Jones et al. 1998, with warped values (as in HEBO, Cowen-Rivers et al. 2022). Points without a value count with their
predicted value (kriging believer, Ginsbourger et al. 2010).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from nnlo_lib.config.search import AutoSamplerConfig, SearchConfig
from nnlo_lib.search.samplers.base import Observations, Sampler, random_points, sampling_rng
from nnlo_lib.search.samplers.gaussian_process import GaussianProcess
from nnlo_lib.search.samplers.model_free import SobolSequence
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.trial import SearchPoint

FITTED = 120  # most values from which hyperparameters are fitted
KNOWN, PENDING = 300, 200  # most points from which values are predicted, and most of these without a value
SCATTERED = 1000  # uniform candidates
MAX_ENUMERATED = 4000  # in finite spaces up to this size, every point is a candidate
# Each round searches near the best candidates, with steps a third as long as in the previous round.
STARTS, NEIGHBORS, ROUNDS = 8, 50, 3
STEPS = (0.2, 0.06, 0.02)  # standard deviations of moves, as shares of a range
WIDE_STEPS = (0.3, 0.1, 0.03, 0.01)  # near the best known points


class _Model(NamedTuple):
    """A process of the known values: their coordinates and warped values, the best first, and the rows of the best."""

    process: GaussianProcess
    known: Array
    values: Array
    best_rows: Array
    least: float  # smallest prediction at the known points


@dataclass(frozen=True)
class BayesianSampler(Sampler):
    """A Sobol sequence for the first `initial` trials, then the greatest expected improvement.

    The Sobol sequence continues while fewer than three different values are known.
    """

    space: SearchSpace
    seed: int
    initial: int | None  # None: two for each free key, from 6 to 20

    @classmethod
    def from_config(cls, config: AutoSamplerConfig, space: SearchSpace, search: SearchConfig) -> Self:
        return cls(space, search.seed, config.initial)

    def __call__(self, number: int, observed: Observations) -> Iterator[SearchPoint]:
        random = sampling_rng(self.seed, "model", number)
        initial = self.initial or min(max(2 * len(self.space.free), 6), 20)
        is_flat = not self.space.free or len({value for _, value in observed.evaluated}) < 3
        if number < initial or is_flat:
            yield from SobolSequence(self.space, self.seed)(number, observed)
            return
        # The rounding of BLAS depends on its number of threads, and a replay must give the same proposals.
        with self._libraries.limit(limits=1):
            rows = self._promising(number, observed, random)
        yield from (self.space.point_at(each) for each in rows)
        yield from random_points(self.space, random)

    def _promising(self, number: int, observed: Observations, random: np.random.Generator) -> Array:
        """Return (n, keys) rows by decreasing expected improvement."""
        # Trials that are proposed one after another without a new value share two models.
        if number % 2 not in observed.memo:
            observed.memo[number % 2] = self._fit(number, observed.evaluated)
        model: _Model = observed.memo[number % 2]
        process, least = self._with_pending(model, observed.pending)

        def improvement(rows: Array) -> Array:
            return log_expected_improvement(*process.predict(self.space.coordinates(rows)), least)

        if self.space.size is not None and self.space.size <= MAX_ENUMERATED:
            return self._every_row[np.argsort(-improvement(self._every_row), kind="stable")]
        scattered = random.random((SCATTERED, len(self.space.scales)))
        near = _neighbors(model.best_rows, WIDE_STEPS, random)
        rows = self._new(np.concatenate([scattered, near]), process.known)
        scores = improvement(rows)
        for round_ in range(ROUNDS):
            # A stable sort orders equal scores reproducibly.
            best = rows[np.argsort(-scores, kind="stable")[:STARTS]]
            near = _neighbors(best, tuple(step / 3**round_ for step in STEPS), random)
            near = self._new(near, np.concatenate([process.known, self.space.coordinates(rows)]))
            rows, scores = np.concatenate([rows, near]), np.concatenate([scores, improvement(near)])
        return rows[np.argsort(-scores, kind="stable")]

    def _new(self, rows: Array, tried: Array) -> Array:
        """Return the rows of a finite space whose coordinates are neither tried nor those of an earlier row."""
        if self.space.size is None:
            return rows  # no two rows give equal points
        coordinates = np.concatenate([tried, self.space.coordinates(rows)])
        first = np.unique(coordinates.round(6), axis=0, return_index=True)[1]
        return rows[np.sort(first[first >= len(tried)]) - len(tried)]

    def _fit(self, number: int, evaluated: Sequence[tuple[SearchPoint, float]]) -> "_Model":
        raw = np.array([value for _, value in evaluated])
        chosen = _best_and_spread(raw, KNOWN)
        rows, values = self._rows([evaluated[each][0] for each in chosen]), _warped(number, raw[chosen])
        known, fitted = self.space.coordinates(rows), _best_and_spread(values, FITTED)
        process = GaussianProcess(self.space.columns, known[fitted], values[fitted])
        process = process.conditioned(known, values)
        # Predicted instead of observed: noise makes the best observation better than the point is.
        return _Model(process, known, values, rows[:STARTS], float(process.means(known).min()))

    def _with_pending(self, model: "_Model", pending: Sequence[SearchPoint]) -> tuple[GaussianProcess, float]:
        """Return the process with the pending points at their predicted values, and its smallest prediction at all points."""
        if not pending:
            return model.process, model.least
        coordinates = self.space.coordinates(self._rows(pending))
        predicted = model.process.means(coordinates)
        near = np.argsort(predicted, kind="stable")[:PENDING]
        kept = _best_and_spread(model.values, KNOWN - len(near))
        known = np.concatenate([model.known[kept], coordinates[near]])
        values = np.concatenate([model.values[kept], predicted[near]])
        return model.process.conditioned(known, values), min(model.least, float(predicted.min()))

    def _rows(self, points: Sequence[SearchPoint]) -> Array:
        # With a thousand pending points, their rows would take as long as the rest of a proposal. The points are kept, so that
        # no other point gets the identity of one of them.
        for point in points:
            if id(point) not in self._row_of:
                self._row_of[id(point)] = point, self.space.unit_row(point)
        return np.array([self._row_of[id(point)][1] for point in points])

    @cached_property
    def _libraries(self) -> ThreadpoolController:
        return ThreadpoolController()  # lists all loaded libraries, which takes 3 ms

    @cached_property
    def _row_of(self) -> dict[int, tuple[SearchPoint, Array]]:
        return {}

    @cached_property
    def _every_row(self) -> Array:
        return self._rows(list(self.space.points()))


def _best_and_spread(values: Array, most: int) -> NDArray[np.intp]:
    """Return at most `most` indices by increasing value: the best, and evenly spaced ones (by rank) of the others."""
    order = np.argsort(values, kind="stable")
    if len(order) <= most:
        return order
    best, rest = order[: most // 2], order[most // 2 :]
    return np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(int)]])


def _warped(number: int, values: Array) -> Array:
    """Return the values with mean 0, variance 1 and about a normal distribution.

    Odd trial numbers use the normal quantiles of the ranks (Salinas et al. 2020), which resolve small differences between
    good values; even ones a power of the values (Yeo and Johnson 2000), which shows whether a difference exceeds the noise.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata, yeojohnson

    if number % 2 == 0:
        with np.errstate(all="ignore"):
            standard = (values - values.mean()) / values.std()
            # The square of a huge value is infinite.
            powers = np.asarray(yeojohnson(standard)[0]) if np.isfinite(standard).all() else standard
        # Powers of extreme values may not be finite, or all equal.
        if np.isfinite(powers).all() and powers.std() > 1e-9:
            return np.asarray((powers - powers.mean()) / powers.std())
    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def _neighbors(rows: Array, steps: tuple[float, ...], random: np.random.Generator) -> Array:
    """Return neighbors of each row: a few keys, or all, move by a step, which is reflected at the bounds, or are redrawn.

    Args:
        rows: (n, keys) positions in the unit cube; NaN is replaced by a random position.
        steps: standard deviations of the moves, one of which is drawn for each neighbor.
    """
    near, keys = np.repeat(rows, NEIGHBORS, axis=0), rows.shape[1]
    near = np.where(np.isnan(near), random.random(near.shape), near)
    moved = random.random(near.shape) < random.choice([1 / keys, 2 / keys, 0.4, 1.0], (len(near), 1))
    # At least one key moves; otherwise a neighbor could equal the row.
    moved[np.arange(len(near)), random.integers(0, keys, len(near))] = True
    steps_drawn = random.choice(steps, (len(near), 1)) * random.standard_normal(near.shape)
    reflected = 1 - np.abs(1 - np.abs(near + steps_drawn))
    # Positions are in [0, 1): the upper end belongs to no cell of a list.
    moves = np.where(random.random(near.shape) < 0.25, random.random(near.shape), reflected)
    return np.asarray(np.where(moved, np.clip(moves, 0, np.nextafter(1, 0)), near))


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return log E[max(best - f, 0)] for normal f (Jones et al. 1998, eq. 15; Ament et al. 2023, eq. 9).

    Args:
        mean: (n,) means of f.
        deviation: (n,) standard deviations of f.
        best: smallest known value.
    """
    from scipy.special import erfcx, ndtr

    z = (best - mean) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    # Far above the best, `direct` is a difference of two nearly equal numbers. So is `second` for z below -1e7, where
    # rounding could make it negative.
    far = np.maximum(-z, 1.0)
    second = np.log(np.maximum(1 - far * math.sqrt(math.pi / 2) * erfcx(far / math.sqrt(2)), 0.1 / far**2))
    direct = np.log(np.maximum(z * ndtr(z) + density, 1e-300))
    tail = second - z**2 / 2 - math.log(2 * math.pi) / 2
    return np.asarray(np.where(z > -1, direct, tail) + np.log(deviation))
