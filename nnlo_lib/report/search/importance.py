"""Importance of the searched keys, from a random forest."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnlo_lib.core.text_format import plural
from nnlo_lib.report.figure import Figure, bar_spec
from nnlo_lib.report.formatting import share
from nnlo_lib.report.search.study_data import SearchedParameter, StudyData

Array = NDArray[np.float64]
MIN_TRIALS = 8  # trials with an objective that a fit needs
MIN_RELIABLE_R2 = 0.2  # R squared on held-out trials below which the forest says nothing about the keys
TREES, SHUFFLES = 100, 5  # trees, shuffles per key
SPLITS = 5  # parts of the trials, each held out once
INACTIVE_INPUT = -1.0  # input of a key that is not active in a trial; active keys are in [0, 1]


class ImportanceForest(NamedTuple):
    """R squared of the predictions for held-out trials, and the share of the variance of each key, the largest first.

    The shares add up to at most R squared. `logarithmic`: the forest predicts the logarithm of the objective.
    """

    r_squared: float
    importances: list[tuple[SearchedParameter, float]]
    logarithmic: bool

    @property
    def is_reliable(self) -> bool:
        """Whether the forest predicts held-out trials well enough to say something about the keys."""
        return self.r_squared >= MIN_RELIABLE_R2


def fit_forest(data: StudyData, keys: Sequence[SearchedParameter]) -> ImportanceForest | None:
    """Fit a forest; return None without keys, or with fewer than MIN_TRIALS trials that have an objective.

    The importance of a key is the decrease of R squared of held-out trials when its values are shuffled among all trials
    (Breiman 2001, section 10), at least 0. Those of all inputs, of which one is the epochs, are scaled to the sum R squared.
    """
    rows = data.drawn_rows
    if len(rows) < MIN_TRIALS or not keys:
        return None
    values = np.array([row.objective for row in rows])
    # Trees minimize the squared error, which a few very poor trials would dominate.
    logarithmic = bool(values.min() > 0 and values.max() / values.min() > 8)
    # NaN marks a key that is not active in a trial. Each key has at least two values: no column is all NaN.
    columns = [[key.coordinate(row.point) for row in rows] for key in keys]
    numbers = np.array([*columns, [row.epochs for row in rows]], dtype=float).T
    low, high = np.nanmin(numbers, axis=0), np.nanmax(numbers, axis=0)
    # A column with a single value, such as equal epochs, has no length to divide by.
    places = (numbers - low) / np.where(high > low, high - low, 1)
    places = np.where(np.isnan(places), INACTIVE_INPUT, places)
    r_squared, shares = _held_out_importances(places, np.log(values) if logarithmic else values)
    pairs = sorted(zip(keys, shares, strict=True), key=lambda pair: -pair[1])
    return ImportanceForest(r_squared, pairs, logarithmic)


def _held_out_importances(places: Array, targets: Array) -> tuple[float, list[float]]:
    """Return R squared of held-out trials, and the share of the variance of each key, from inputs (trials, keys + 1)."""
    # Imported here, because importing scikit-learn is slow and only searches with enough trials need it.
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import KFold

    # Fixed seeds make equal inputs give equal pages.
    random = np.random.default_rng(0)
    # Each key's values in SHUFFLES other orders; a part of the trials would be too few to shuffle.
    shuffled = np.array([[random.permutation(column) for _ in range(SHUFFLES)] for column in places.T])
    predicted = np.empty((1 + len(shuffled), SHUFFLES, len(targets)))
    for fitted, held_out in KFold(SPLITS, shuffle=True, random_state=0).split(places):
        forest = RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0)
        forest.fit(places[fitted], targets[fitted])
        inputs = np.tile(places[held_out], (len(predicted), SHUFFLES, 1, 1))
        for column, orders in enumerate(shuffled):
            inputs[1 + column, ..., column] = orders[:, held_out]
        found = forest.predict(inputs.reshape(-1, places.shape[1]))
        predicted[..., held_out] = found.reshape(inputs.shape[:-1])
    # Equal objectives have no variance to explain.
    variance = np.square(targets - targets.mean()).sum() or math.inf
    scores = 1 - np.square(predicted - targets).sum(axis=2).mean(axis=1) / variance
    r_squared = float(scores[0]) if math.isfinite(variance) else 0.0
    drops = np.clip(scores[0] - scores[1:], 0, None)
    # The last column is the number of epochs, which is no searched key.
    return r_squared, (drops / (drops.sum() or 1) * max(r_squared, 0.0))[:-1].tolist()


def importance_figure(fitted: ImportanceForest | None) -> Figure | None:
    """Return a bar per key, the most important first; None without a reliable forest."""
    if not fitted or not fitted.is_reliable:
        return None
    part = "share of the variance"
    ranked = [(key.name, share(each), each) for key, each in fitted.importances]
    drawn = [(f"{name} · {text}", part, value, text) for name, text, value in ranked]
    spec = bar_spec(pd.DataFrame(drawn, columns=["label", "part", "value", "text"]), [part], "", ".2~%")
    rows = [(name, text) for name, text, _ in ranked]
    return Figure(
        "Importance", "", "Share of the variance of the objective by key.", spec, ("key", "share"), rows
    )


def importance_note(data: StudyData, fitted: ImportanceForest | None) -> str:
    """Return sentences on the computation of the importances and on the quality of the fit."""
    if fitted is None:
        return f"Importance requires at least {MIN_TRIALS} trials with an objective and a key with at least two different values."
    target = "the logarithm of the objective" if fitted.logarithmic else "the objective"
    found = f"A random forest predicts {target} from keys and epochs of {plural(len(data.drawn_rows), 'trial')}; it explains {max(0.0, fitted.r_squared):.0%} of the variance of held-out trials"
    if not fitted.is_reliable:
        return f"{found}, less than {MIN_RELIABLE_R2:.0%}: importances are not shown."
    return (
        f"{found}. The bars divide this share among the keys by permutation importance (Breiman 2001), the decrease of R² "
        "when the values of a key are shuffled among all trials."
    )
