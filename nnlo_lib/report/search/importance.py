"""Importance and partial dependence of each searched key, from a random forest fitted to the trials."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.report.search.parameters import SearchedParameter
from nnlo_lib.report.search.study_data import StudyData

Array = NDArray[np.float64]

MIN_TRIALS = 8  # trials with an objective that a fit needs
TREES, SHUFFLES, GRID = 100, 5, 24  # trees, shuffles per key, points per partial dependence
INACTIVE_INPUT = -1.0  # input of a key that is not active in a trial; active keys are in [0, 1]


@dataclass(frozen=True)
class ImportanceForest:
    """The fitted forest.

    Attributes:
        keys: searched keys.
        inputs: (trials, keys + 1) in [0, 1], or INACTIVE_INPUT; the last column is the number of epochs.
        ranges: (keys + 1, 2) smallest and largest number of each column before scaling.
        model: the regressor.
        r_squared: R squared on out-of-bag samples.
        importances: share of importance of each key.
        logarithmic: whether the forest predicts the logarithm of the objective.
    """

    keys: tuple[SearchedParameter, ...]
    inputs: Array
    ranges: Array
    model: Any
    r_squared: float
    importances: tuple[float, ...]
    logarithmic: bool

    def ranked_parameters(self) -> list[tuple[SearchedParameter, float]]:
        """Return the keys with their shares of importance, the largest first."""
        pairs = zip(self.keys, self.importances, strict=True)
        return sorted(pairs, key=lambda pair: -pair[1])

    def partial_dependence(self, key: SearchedParameter) -> tuple[list[float], list[float]]:
        """Return values of a key as numbers, and the mean prediction of the objective at each of them.

        The mean is over the trials in which the key is active, with the largest number of epochs of all
        trials. If the forest predicts the logarithm, the mean is geometric.
        """
        column = self.keys.index(key)
        active = self.inputs[self.inputs[:, column] != INACTIVE_INPUT]
        low, high = self.ranges[column]
        grid = np.linspace(0, 1, len(key.choices) or GRID)
        changed = np.repeat(active[None], len(grid), axis=0)
        changed[:, :, -1] = 1.0  # the largest number of epochs of all trials
        changed[:, :, column] = grid[:, None]
        predicted = (
            self.model.predict(changed.reshape(-1, active.shape[1])).reshape(len(grid), -1).mean(axis=1)
        )
        numbers = low + grid * (high - low)
        objective = np.exp(predicted) if self.logarithmic else predicted
        return list(np.exp(numbers) if _is_log(key) else numbers), list(objective)


def fit_forest(data: StudyData, keys: Sequence[SearchedParameter]) -> ImportanceForest | None:
    """Fit a forest; return None without keys, or with fewer than MIN_TRIALS trials that have an objective.

    The importance of a key is the decrease of R squared when its values are shuffled among the trials of the
    fit (Breiman 2001, section 10), as a share of the sum over all keys; negative values count as 0. The
    number of epochs of a trial is also an input, because the trials include stopped ones.
    """
    rows = data.ranked_rows
    if len(rows) < MIN_TRIALS or not keys:
        return None
    # Imported here, because importing scikit-learn is slow and only searches with enough trials need it.
    from sklearn.ensemble import RandomForestRegressor

    values = np.array([row.objective for row in rows])
    # Trees minimize the squared error, which a few very poor trials would dominate.
    logarithmic = bool(values.min() > 0 and values.max() / values.min() > 8)
    targets = np.log(values) if logarithmic else values
    numbers = np.array(
        [[*(_number(key, row.point) for key in keys), row.epochs] for row in rows], dtype=float
    )
    # NaN marks a key that is not active in a trial. Each key has at least two values, so no column is all
    # NaN.
    ranges = np.array([(np.nanmin(column), np.nanmax(column)) for column in numbers.T])
    places = _placed(numbers, ranges)
    # The fixed seed makes equal inputs give equal pages. Out-of-bag samples measure the fit without a test
    # set.
    model = RandomForestRegressor(TREES, min_samples_leaf=2, oob_score=True, random_state=0)
    model.fit(places, targets)
    shares = _shares(model, places, targets)
    return ImportanceForest(tuple(keys), places, ranges, model, float(model.oob_score_), shares, logarithmic)


def _shares(model: Any, places: Array, targets: Array) -> tuple[float, ...]:
    from sklearn.inspection import permutation_importance

    found = permutation_importance(model, places, targets, n_repeats=SHUFFLES, random_state=0)
    # The last column is the number of epochs, which is no searched key.
    positive = np.clip(found.importances_mean[:-1], 0, None)
    return tuple((positive / (positive.sum() or 1)).tolist())


def _placed(numbers: Array, ranges: Array) -> Array:
    low, high = ranges.T
    # A column with a single value, such as equal epochs, has no length to divide by.
    places = (numbers - low) / np.where(high > low, high - low, 1)
    return np.where(np.isnan(places), INACTIVE_INPUT, places)


def _number(key: SearchedParameter, point: dict[str, Any]) -> float:
    if key.name not in point:
        return math.nan
    number = key.to_number(point[key.name])
    return math.log(number) if _is_log(key) else number


def _is_log(key: SearchedParameter) -> bool:
    return not key.choices and key.dimension.kind.startswith("log")
