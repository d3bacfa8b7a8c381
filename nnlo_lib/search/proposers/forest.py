"""Extremely randomized trees (Geurts et al. 2006) as a model: their mean, and how much they disagree."""

import numpy as np

from nnlo_lib.search.proposers.surrogate import Predict
from nnlo_lib.search.scales import Array


class ForestFit:
    """trees: of the forest."""

    def __init__(self, trees: int) -> None:
        self._trees = trees

    def __call__(self, coordinates: Array, values: Array, seed: int) -> Predict:
        from sklearn.ensemble import ExtraTreesRegressor

        forest = ExtraTreesRegressor(self._trees, random_state=seed, min_samples_leaf=1)
        forest.fit(coordinates, values)

        def predict(coordinates: Array) -> tuple[Array, Array]:
            single = np.float32(coordinates)
            each = np.array([tree.tree_.predict(single).ravel() for tree in forest.estimators_])
            return each.mean(0), each.std(0)

        return predict
