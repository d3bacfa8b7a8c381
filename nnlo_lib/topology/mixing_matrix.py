"""Mixing matrices: the weights of links, matrices with lost links, and the number of nodes that a node averages over."""

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config.topology import MixingWeights
from nnlo_lib.core.errors import UserError

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


def undirected_weights(graph: nx.Graph, weights: MixingWeights) -> Matrix:
    """Return the mixing matrix of an undirected graph: symmetric, every row and column sums to one.

    Metropolis and maximum-degree weights: Xiao, Boyd, Lall, A scheme for robust distributed sensor fusion, 2005. Raises
    UserError if `weights` is uniform and degrees differ.
    """
    links = adjacency(graph)
    degree = links.sum(axis=1)
    if weights == "uniform" and np.ptp(degree):
        raise UserError(
            f"topology.weights: uniform needs the same number of neighbors for all nodes, but the nodes have "
            f"{degree.min():.0f} to {degree.max():.0f} neighbors; use metropolis"
        )
    larger = np.maximum.outer(degree, degree)
    divisors: dict[MixingWeights, Matrix] = {
        "metropolis": 1 + larger,
        "lazy_metropolis": 2 * (1 + larger),
        "max_degree": 1 + degree.max(),
        "uniform": 1 + degree,
    }
    return with_self_weights(links / divisors[weights])


def push_sum_weights(graph: nx.DiGraph) -> Matrix:
    """Return the push-sum matrix of a directed graph: sender j splits evenly, every column sums to one.

    w_ij = 1 / (1 + out-degree of j): Nedic, Olshevsky, arXiv:1303.2289.
    """
    links = adjacency(graph)
    share = 1 / (1 + links.sum(axis=1))
    matrix: Matrix = links.T * share + np.diag(share)
    return matrix


def given_weights(graph: nx.Graph) -> Matrix:
    """Return the mixing matrix of a graph whose links have a `weight`, the same sums into and out of each node."""
    return with_self_weights(nx.to_numpy_array(graph, nodelist=range(len(graph))).T.copy())


def drop_links(matrix: Matrix, drop: float, generator: np.random.Generator) -> Matrix:
    """Return the mixing matrix of a round in which each link of a symmetric `matrix` is lost with the probability `drop`."""
    # One draw for both directions of a link: the matrix stays symmetric, so that mixing keeps the mean.
    one, other = np.nonzero(np.triu(matrix, 1))
    lost = generator.random(one.size) < drop
    kept = matrix - np.diag(matrix.diagonal())
    kept[one[lost], other[lost]] = kept[other[lost], one[lost]] = 0
    return with_self_weights(kept)


def adjacency(graph: nx.Graph) -> Matrix:
    """Return the (nodes, nodes) array that is 1 if the row's node is linked to the column's, else 0."""
    links: Matrix = nx.to_numpy_array(graph, nodelist=range(len(graph)), weight=None)
    return links


def with_self_weights(links: Matrix) -> Matrix:
    """Return `links` with self-weights on the diagonal, so that every row sums to one."""
    # With symmetric `links` the columns, too, sum to one, whatever links are missing.
    whole: Matrix = links + np.diag(1 - links.sum(axis=1))
    return whole
