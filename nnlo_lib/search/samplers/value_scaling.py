"""Scaling of objective values before a model is fitted to them."""

from collections.abc import Callable

import numpy as np

from nnlo_lib.search.space.scales import Array

# Trial number, (n,) values -> (n,) values with mean 0 and variance of about 1.
Scaling = Callable[[int, Array], Array]


def standardized(number: int, values: Array) -> Array:
    """Return the values scaled to mean 0 and variance 1."""
    return np.asarray((values - values.mean()) / values.std())


def ranked(number: int, values: Array) -> Array:
    """Return the normal quantiles of the ranks (Salinas et al. 2020), so that bad values have less effect."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def in_turn(number: int, values: Array) -> Array:
    """Return `ranked` values for odd trial numbers and `standardized` values for even ones.

    Ranks resolve small differences between good values; values show whether a difference exceeds the noise.
    """
    return (ranked if number % 2 else standardized)(number, values)
