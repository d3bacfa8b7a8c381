"""One round of mixing: the senders of each node and their weights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MixingMatrix:
    """The mixing matrix of one round.

    `matrix` has shape (nodes, nodes) and is read-only; row i holds the weights of the vectors that node i
    receives. A weight off the diagonal is zero exactly where there is no link.
    """

    matrix: Matrix

    def __post_init__(self) -> None:
        # Simulated ranks share one object: a write would change the weights of all of them.
        self.matrix.setflags(write=False)

    def neighbors(self, rank: int) -> dict[int, float]:
        """Return the ranks from which `rank` receives, ascending, without itself, and their weights."""
        row = self.matrix[rank]
        others = _others(row, rank)
        return dict(zip(others.tolist(), row[others].tolist(), strict=True))

    def degree(self, rank: int) -> int:
        """Return the number of ranks from which `rank` receives."""
        return len(_others(self.matrix[rank], rank))

    def receivers(self, rank: int) -> list[int]:
        """Return the ranks to which `rank` sends, in ascending order, without itself."""
        receivers: list[int] = _others(self.matrix[:, rank], rank).tolist()
        return receivers

    def self_weight(self, rank: int) -> float:
        """Return the weight that `rank` gives its own vector."""
        return float(self.matrix[rank, rank])


def _others(weights: Matrix, rank: int) -> NDArray[np.intp]:
    others: NDArray[np.intp] = np.flatnonzero(weights)
    return np.delete(others, np.searchsorted(others, rank)) if weights[rank] else others
