"""Rows at which a model's acquisition function is evaluated: across the space, and near the best rows."""

from collections.abc import Callable

import numpy as np

from nnlo_lib.search.space.scales import Array

# Each round searches near the best rows, with steps a third as long as in the previous round.
LOCAL_SEARCH_STARTS, NEIGHBORS_PER_START, LOCAL_SEARCH_ROUNDS = 5, 100, 3
LOCAL_SEARCH_STEPS = (0.1, 0.03, 0.01)  # standard deviations of moves, as shares of a range


def scattered(count: int, keys: int, random: np.random.Generator) -> Array:
    """Return (count, keys) rows drawn uniformly from the unit cube.

    Args:
        count: number of rows.
        keys: number of searched keys.
        random: random number generator.
    """
    return random.random((count, keys))


def perturbed_rows(rows: Array, each: int, steps: tuple[float, ...], random: np.random.Generator) -> Array:
    """Return neighbors of each row: some keys move by a small step, a few are redrawn.

    Args:
        rows: (n, keys) positions in the unit cube; NaN is replaced by a random position.
        each: number of neighbors per row.
        steps: standard deviations of the moves, as shares of a range; one of them is drawn for each neighbor.
        random: random number generator.
    """
    keys = rows.shape[1]
    near = np.repeat(rows, each, axis=0)
    near = np.where(np.isnan(near), random.random(near.shape), near)
    moved = random.random(near.shape) < max(1 / keys, 0.4)
    # At least one key moves; otherwise a neighbor could equal the row.
    moved[np.arange(len(near)), random.integers(0, keys, len(near))] = True
    step = random.choice(steps, (len(near), 1))
    # Positions are in [0, 1): the upper end belongs to no cell of a list.
    moves = np.clip(near + step * random.standard_normal(near.shape), 0, np.nextafter(1, 0))
    redrawn = random.random(near.shape) < 0.5 / keys
    return np.where(redrawn, random.random(near.shape), np.where(moved, moves, near))


def local_search(score: Callable[[Array], Array], rows: Array, random: np.random.Generator) -> Array:
    """Return the rows and neighbors of the best rows, by decreasing score.

    Args:
        score: returns (n,) scores of (n, keys) rows.
        rows: (n, keys) positions in the unit cube.
        random: random number generator.
    """
    scores = score(rows)
    for round_ in range(LOCAL_SEARCH_ROUNDS):
        # A stable sort orders equal scores reproducibly.
        top = rows[np.argsort(-scores, kind="stable")[:LOCAL_SEARCH_STARTS]]
        near = perturbed_rows(
            top, NEIGHBORS_PER_START, tuple(step / 3**round_ for step in LOCAL_SEARCH_STEPS), random
        )
        rows, scores = np.concatenate([rows, near]), np.concatenate([scores, score(near)])
    return rows[np.argsort(-scores, kind="stable")]
