"""What a model is told of values: on which scale good and better are told apart."""

from collections.abc import Callable

import numpy as np

from nnlo_lib.search.space.scales import Array

Scaling = Callable[
    [int, Array], Array
]  # number of the trial, (n,) values -> (n,) values near a standard normal


def standardized(number: int, values: Array) -> Array:
    """Return mean 0, variance 1."""
    return np.asarray((values - values.mean()) / values.std())


def ranked(number: int, values: Array) -> Array:
    """Return the normal quantiles of the ranks (Salinas et al. 2020): the best stand out however bad others are."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def in_turn(number: int, values: Array) -> Array:
    """Rank for every other trial: ranks refine what is good, values tell noise from merit."""
    return (ranked if number % 2 else standardized)(number, values)
