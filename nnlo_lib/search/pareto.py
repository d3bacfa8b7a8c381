"""Several objectives: the Pareto front, the choice of one trial from it, and one value for samplers and pruners.

A vector has the value of each objective; smaller is better.
"""

from collections.abc import Mapping
from operator import le

import numpy as np

Vector = tuple[float, ...]
AUGMENTATION = 0.05  # rho of Knowles 2006: of two trials with the same maximum, the dominated one is worse


def dominates(one: Vector, other: Vector) -> bool:
    """Return True if `one` is not worse in any objective and better in at least one."""
    return one != other and all(map(le, one, other))


def pareto_front(vectors: Mapping[int, Vector]) -> list[int]:
    """Return the trials that no other trial dominates, the best in the first objective first."""
    front: list[int] = []
    # In this order, no later trial dominates an earlier one.
    for trial in sorted(vectors, key=lambda each: (vectors[each], each)):
        if not any(dominates(vectors[each], vectors[trial]) for each in front):
            front.append(trial)
    return front


def knee(front: Mapping[int, Vector]) -> int:
    """Return the trial of a front nearest to the best value of each objective, scaled to the range of the front."""
    values = np.array(list(front.values()))
    low, high = values.min(axis=0), values.max(axis=0)
    # All trials of a front may be equal in an objective.
    scaled = (values - low) / np.where(high > low, high - low, 1)
    return list(front)[int(np.square(scaled).sum(axis=1).argmin())]


def count_dominating(vectors: Mapping[int, Vector]) -> dict[int, int]:
    """Return the number of trials that dominate each one: its rank (Fonseca and Fleming 1993)."""
    values = np.array(list(vectors.values()))
    return {
        trial: int(((values <= row).all(axis=1) & (values < row).any(axis=1)).sum())
        for trial, row in zip(vectors, values, strict=True)
    }


def weighted_values(vectors: Mapping[int, Vector], random: np.random.Generator) -> dict[int, float]:
    """Return ParEGO's one value of each trial for random weights: the augmented Chebyshev function (Knowles 2006, eq. 2).

    Each objective counts by its rank among the trials, in [0, 1]: a model of some large trials would otherwise decide
    about the scale of all others. Any trial of the front is the best one for some weights.
    """
    if len(vectors) < 2:
        return dict.fromkeys(vectors, 0.0)
    from scipy.stats import rankdata

    values = np.array(list(vectors.values()))
    ranks = (rankdata(values, axis=0) - 1) / (len(values) - 1)
    weighted = random.dirichlet(np.ones(values.shape[1])) * ranks  # uniform on the simplex
    one = weighted.max(axis=1) + AUGMENTATION * weighted.sum(axis=1)
    return dict(zip(vectors, one.tolist(), strict=True))
