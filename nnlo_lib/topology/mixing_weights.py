"""Compute the mixing matrix of a graph."""

from typing import assert_never

import networkx as nx
import numpy as np

from nnlo_lib.config.topology import MixingWeights
from nnlo_lib.core.errors import UserError
from nnlo_lib.topology.mixing import Matrix


def undirected_weights(graph: nx.Graph, weights: MixingWeights) -> Matrix:
    """Return the mixing matrix of an undirected graph: symmetric, every row and column sums to one.

    Metropolis and maximum-degree weights: Xiao, Boyd, Lall, A scheme for robust distributed sensor fusion,
    2005.
    Raises UserError if `weights` is uniform and degrees differ.
    """
    links = adjacency(graph)
    degree = links.sum(axis=1)
    match weights:
        case "metropolis":
            return with_self_weights(links / (1 + np.maximum.outer(degree, degree)))
        case "lazy_metropolis":
            return with_self_weights(links / (1 + np.maximum.outer(degree, degree)) / 2)
        case "max_degree":
            return with_self_weights(links / (1 + degree.max()))
        case "uniform":
            _same(degree)
            return with_self_weights(links / (1 + degree))
        case _:
            assert_never(weights)


def push_sum_weights(graph: nx.DiGraph) -> Matrix:
    """Return the push-sum matrix of a directed graph: sender j splits evenly, every column sums to one.

    w_ij = 1 / (1 + out-degree of j): Nedic, Olshevsky, arXiv:1303.2289.
    """
    links = adjacency(graph)
    share = 1 / (1 + links.sum(axis=1))
    matrix: Matrix = links.T * share + np.diag(share)
    return matrix


def drop_links(matrix: Matrix, drop: float, generator: np.random.Generator) -> Matrix:
    """Return the mixing matrix of a round in which links may be lost.

    Args:
        matrix: symmetric mixing matrix without losses, (nodes, nodes); not changed.
        drop: probability that a link is lost.
        generator: source of the draws, one per link.
    """
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


def _same(degree: Matrix) -> None:
    if np.ptp(degree):
        raise UserError(
            f"topology.weights: uniform needs the same number of neighbors for all nodes, but the nodes have "
            f"{degree.min():.0f} to {degree.max():.0f} neighbors; use metropolis"
        )
