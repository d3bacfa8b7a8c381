"""Extremely randomized trees (Geurts et al. 2006) as a model: mean and deviation of their predictions."""

from typing import Self

import numpy as np

from nnlo_lib.config.search import ForestSamplerConfig, SearchConfig
from nnlo_lib.search.samplers.model_based import ModelBased, Predict
from nnlo_lib.search.samplers.value_scaling import in_turn
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace


class ForestFit:
    """Fits a forest with this number of trees."""

    def __init__(self, trees: int) -> None:
        self._trees = trees

    def __call__(self, coordinates: Array, values: Array, seed: int) -> Predict:
        from sklearn.ensemble import ExtraTreesRegressor

        forest = ExtraTreesRegressor(self._trees, random_state=seed, min_samples_leaf=1)
        forest.fit(coordinates, values)

        def predict(coordinates: Array) -> tuple[Array, Array]:
            # `tree_.predict` accepts float32 only; the trees' own `predict` would check its input each time.
            single = np.float32(coordinates)
            each = np.array([tree.tree_.predict(single).ravel() for tree in forest.estimators_])
            return each.mean(0), each.std(0)

        return predict


class ForestSampler(ModelBased):
    """Expected improvement, predicted by a forest."""

    @classmethod
    def from_config(cls, config: ForestSamplerConfig, space: SearchSpace, search: SearchConfig) -> Self:
        return cls(space, search.seed, config.initial, ForestFit(config.trees), in_turn)
