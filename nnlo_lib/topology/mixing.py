"""One round of mixing: who receives from whom, with which weight."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MixingMatrix:
    """Hold the mixing matrix of one round.

    `matrix` has shape (nodes, nodes) and is read-only; row i holds the weights of what node i receives. A weight
    off the diagonal is zero exactly where there is no link.
    """

    matrix: Matrix

    def __post_init__(self) -> None:
        self.matrix.setflags(write=False)

    def neighbors(self, rank: int) -> dict[int, float]:
        """Return whom `rank` receives from and with which weight, in ascending order, without itself."""
        row = self.matrix[rank]
        others = _others(row, rank)
        return dict(zip(others.tolist(), row[others].tolist(), strict=True))

    def receivers(self, rank: int) -> list[int]:
        """Return whom `rank` sends to, in ascending order, without itself."""
        receivers: list[int] = _others(self.matrix[:, rank], rank).tolist()
        return receivers

    def self_weight(self, rank: int) -> float:
        """Return the weight that `rank` keeps for itself."""
        return float(self.matrix[rank, rank])


def _others(weights: Matrix, rank: int) -> NDArray[np.intp]:
    others: NDArray[np.intp] = np.flatnonzero(weights)
    return np.delete(others, np.searchsorted(others, rank)) if weights[rank] else others
