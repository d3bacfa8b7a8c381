"""Models of a search's values: extremely randomized trees, and a Gaussian process."""

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nnlo_lib.config.search import ForestSamplerConfig, GaussianProcessSamplerConfig, SearchConfig
from nnlo_lib.search.samplers.base import in_turn, standardized
from nnlo_lib.search.samplers.model_based import ModelBased, Predict
from nnlo_lib.search.space.scales import Array
from nnlo_lib.search.space.space import SearchSpace

MAX_FIT_POINTS = 200  # points: one half are the best points, the other half is spread over the rest
MAX_OPTIMIZER_STEPS = 30  # of L-BFGS-B


class ForestFit:
    """Fits extremely randomized trees (Geurts et al. 2006); predicts mean and deviation of their predictions."""

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


class GaussianProcessFit:
    """Fits a process with noise, and Matern 5/2 with a length scale for each coordinate; predicts without noise.

    The hyperparameters are the most probable ones under log-normal priors; without priors, a fit to few points
    would overfit.
    """

    def __call__(self, coordinates: Array, values: Array, seed: int) -> Predict:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        chosen = select_fit_points(values, MAX_FIT_POINTS)
        d = coordinates.shape[1]
        kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern([0.5] * d, (2e-2, 2e1), nu=2.5)
        noisy = kernel + WhiteKernel(1e-2, (1e-6, 1.0))
        process = GaussianProcessRegressor(noisy, alpha=1e-8, optimizer=most_probable)
        # The rounding of BLAS depends on its number of threads, and a replay must give the same proposals.
        with threadpool_limits(1):
            process.fit(coordinates[chosen], values[chosen])

        def predict(coordinates: Array) -> tuple[Array, Array]:
            with threadpool_limits(1):
                mean, deviation = process.predict(coordinates, return_std=True)
            # scikit-learn's deviation includes the noise; the expected improvement is of noise-free values.
            noise = process.kernel_.k2.noise_level
            return mean, np.sqrt(np.maximum(deviation**2 - noise, 1e-12))

        return predict


class GaussianProcessSampler(ModelBased):
    """Expected improvement, predicted by a Gaussian process."""

    @classmethod
    def from_config(
        cls, config: GaussianProcessSamplerConfig, space: SearchSpace, search: SearchConfig
    ) -> Self:
        return cls(space, search.seed, config.initial, GaussianProcessFit(), standardized)


def select_fit_points(values: Array, most: int) -> NDArray[np.intp]:
    """Return at most `most` indices: the best values, and evenly spaced ones (by rank) of the others."""
    order = np.argsort(values, kind="stable")
    if len(order) <= most:
        return order
    best, rest = order[: most // 2], order[most // 2 :]
    return np.concatenate([best, rest[np.linspace(0, len(rest) - 1, most - len(best)).astype(int)]])


def most_probable(
    objective: Callable[..., tuple[float, Array]], start: Array, bounds: Array
) -> tuple[Array, float]:
    """Return the most probable log hyperparameters and their penalized objective.

    Args:
        objective: returns the negative log marginal likelihood and its gradient.
        start: (hyperparameters,) start values, which are also the means of the prior.
        bounds: (hyperparameters, 2) bounds.
    """
    from scipy.optimize import minimize

    # Prior: amplitude 1, length scales 0.5, and noise 0.01 with the widest deviation (the WhiteKernel's is the last).
    mean, deviation = start.copy(), np.full(len(start), 1.0)
    deviation[-1] = 3.0

    def penalized(theta: Array) -> tuple[float, Array]:
        value, slope = objective(theta, eval_gradient=True)
        away = (theta - mean) / deviation
        return value + 0.5 * float(away @ away), slope + away / deviation

    found = minimize(
        penalized, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": MAX_OPTIMIZER_STEPS}
    )
    # Rounded, so that the last bits of the optimizer's result do not change a proposal.
    return np.round(found.x, 3), float(found.fun)
