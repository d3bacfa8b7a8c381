"""A Gaussian process of a search's values: Matern 5/2 with a length scale for each key, and noise.

scikit-learn's has no priors, so that it overfits few points, and a length scale for each coordinate of a list of values.
"""

import math
from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.search.space.scales import Array

MAX_OPTIMIZER_STEPS = 25  # of L-BFGS-B
CACHED = 2**14  # kernel values that are computed together
JITTER = 1e-8  # keeps the kernel matrix positive definite
# Log-normal priors of amplitude (a variance), noise (a variance) and length scales (shares of a range): mean, deviation of
# the logarithm, and bounds.
AMPLITUDE = (1.0, 1.0, 0.05, 20.0)
NOISE = (0.01, 2.0, 1e-6, 1.0)
LENGTH = (0.5, 1.0, 0.02, 30.0)


class GaussianProcess:
    """A process with mean 0, fitted to values of mean 0 and variance 1.

    Its hyperparameters are the most probable ones under log-normal priors.
    """

    def __init__(self, keys: Sequence[slice], coordinates: Array, values: Array) -> None:
        """Fit the hyperparameters.

        Args:
            keys: coordinates of each key: one, or several for a list of values.
            coordinates: (n, coordinates) positions in [0, 1].
            values: (n,) values.
        """
        self._key_of = np.repeat(np.arange(len(keys)), [each.stop - each.start for each in keys])
        self._log = _most_probable(
            np.stack([_squared_distances(coordinates[:, key], coordinates[:, key]) for key in keys], axis=-1),
            values,
        )
        self._set_known(coordinates, values)

    def conditioned(self, coordinates: Array, values: Array) -> "GaussianProcess":
        """Return the process with the same hyperparameters and these known values."""
        found = copy(self)
        found._set_known(coordinates, values)
        return found

    def _set_known(self, coordinates: Array, values: Array) -> None:
        from scipy.linalg import cho_factor, cho_solve

        self.known = coordinates
        self._known = self._scaled(coordinates)
        kernel = self._kernel(coordinates)
        kernel.flat[:: len(values) + 1] += math.exp(self._log[1]) + JITTER
        self._factor = cho_factor(kernel, lower=True, check_finite=False)
        self._weights = cho_solve(self._factor, values, check_finite=False)

    def predict(self, coordinates: Array) -> tuple[Array, Array]:
        """Return (n,) means and (n,) standard deviations of the values without noise."""
        from scipy.linalg import solve_triangular

        kernel = self._kernel(coordinates)
        explained = solve_triangular(self._factor[0], kernel.T, lower=True, check_finite=False)
        variance = np.maximum(self._amplitude - (explained**2).sum(axis=0), 1e-12)
        return kernel @ self._weights, np.sqrt(variance)

    def means(self, coordinates: Array) -> Array:
        """Return (n,) means of the values."""
        return np.asarray(self._kernel(coordinates) @ self._weights)

    def _kernel(self, coordinates: Array) -> Array:
        kernel: Array = _squared_distances(self._scaled(coordinates), self._known)
        # In place, and by parts that stay in the cache: 2,600 candidates and 300 known points take a third of the time.
        for part in np.array_split(kernel, 1 + kernel.size // CACHED):
            root = np.sqrt(np.multiply(part, 5, out=part))
            polynomial = root**2
            polynomial /= 3
            polynomial += 1 + root
            np.exp(np.negative(root, out=root), out=root)
            np.multiply(polynomial, root, out=part)
            part *= self._amplitude
        return kernel

    @property
    def _amplitude(self) -> float:
        return math.exp(self._log[0])

    def _scaled(self, coordinates: Array) -> Array:
        return coordinates * np.exp(-self._log[2:])[self._key_of]


def _squared_distances(one: Array, other: Array) -> Array:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(one, other, "sqeuclidean"))


def _matern(squared: Array) -> tuple[Array, Array]:
    """Return the Matern 5/2 kernel at squared distances, and its slope by them (Rasmussen and Williams 2006, eq. 4.17)."""
    root = np.sqrt(5 * squared)
    decay = np.exp(-root)
    return (1 + root + root**2 / 3) * decay, -5 / 6 * (1 + root) * decay


def _most_probable(squared: Array, values: Array) -> Array:
    """Return the most probable logarithms of amplitude, noise and length scales.

    Args:
        squared: (n, n, keys) squared distances by key.
        values: (n,) values.
    """
    from scipy.optimize import minimize

    mean, deviation, low, high = np.array([AMPLITUDE, NOISE, *[LENGTH] * squared.shape[-1]]).T
    center, bounds = np.log(mean), np.log(np.stack([low, high], axis=1))

    def penalized(log: Array) -> tuple[float, Array]:
        value, slope = _negative_log_likelihood(log, squared, values)
        away = (log - center) / deviation
        return value + 0.5 * float(away @ away), slope + away / deviation

    found = minimize(
        penalized,
        center,
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": MAX_OPTIMIZER_STEPS},
    )
    # Rounded, so that the last bits of the optimizer's result do not change a proposal.
    return np.asarray(np.round(found.x, 3))


def _negative_log_likelihood(log: Array, squared: Array, values: Array) -> tuple[float, Array]:
    """Return the negative log marginal likelihood and its gradient (Rasmussen and Williams 2006, eqs. 5.8 and 5.9)."""
    from scipy.linalg import cho_factor, cho_solve

    amplitude, noise, inverse_squares = math.exp(log[0]), math.exp(log[1]), np.exp(-2 * log[2:])
    kernel, kernel_slope = _matern(squared @ inverse_squares)
    covariance = amplitude * kernel
    covariance.flat[:: len(values) + 1] += noise + JITTER
    factor = cho_factor(covariance, lower=True, check_finite=False)
    weights = cho_solve(factor, values, check_finite=False)
    value = 0.5 * values @ weights + np.log(np.diag(factor[0])).sum()
    slope: NDArray[np.float64] = cho_solve(factor, np.eye(len(values)), check_finite=False) - np.outer(
        weights, weights
    )
    by_length = -2 * inverse_squares * amplitude * np.tensordot(slope * kernel_slope, squared, axes=2)
    by_variance = amplitude * (slope * kernel).sum(), noise * np.trace(slope)
    return float(value), 0.5 * np.array([*by_variance, *by_length])
