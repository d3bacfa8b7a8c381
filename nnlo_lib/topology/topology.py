"""The topology of a run: the mixing matrix of every round, and the properties of the graphs."""

import functools
from collections.abc import Iterator

import networkx as nx
import numpy as np

from nnlo_lib.config.topology import GraphConfig, TopologyConfig, UndirectedGraphConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.graphs import build_graph
from nnlo_lib.topology.mixing import Matrix, MixingMatrix
from nnlo_lib.topology.mixing_weights import drop_links, push_sum_weights, undirected_weights
from nnlo_lib.topology.time_varying import (
    drop_probability,
    first_round_of_graph,
    graph_at_round,
    has_drops,
    has_redraws,
    period,
)

TOPOLOGY_CACHE_SIZE = 64  # entries of each cache: rounds, topologies, matrices
EIGENVALUE_TOLERANCE = 1e-12  # eigenvalues of smaller modulus are rounding errors


class Topology:
    """The mixing of every round of a run: the nodes that exchange parameters, and their weights.

    The properties (connected, spectral_gap, ...) hold over one period: one round if `static`, else the rounds
    until the graphs repeat. In this period, redrawn graphs count as drawn in its rounds, and links
    that may be lost have their expected weight.
    """

    def __init__(self, settings: TopologyConfig, nodes: int, seed: int) -> None:
        self.settings = settings
        self.nodes = nodes
        self.seed = seed
        self.period = period(settings, nodes)
        self.static = self.period == 1 and not has_redraws(settings) and not has_drops(settings)
        self._at = functools.lru_cache(maxsize=TOPOLOGY_CACHE_SIZE)(self._mixing)

    def at(self, round: int) -> MixingMatrix:
        """Return the mixing matrix of a round, the same object for every rank.

        Raises UserError if the graph of a later round could not be drawn.
        """
        return self._at(0 if self.static else round)

    @functools.cached_property
    def directed(self) -> bool:
        """Whether in some round a node sends to another node without receiving from it."""
        return any(not _mutual(matrix) for matrix in self._expected())

    @functools.cached_property
    def symmetric(self) -> bool:
        """Whether every matrix equals its transpose."""
        return all(np.array_equal(matrix, matrix.T) for matrix in self._expected())

    @functools.cached_property
    def doubly_stochastic(self) -> bool:
        """Whether the rows and columns of every matrix sum to one, so that mixing keeps the mean."""
        return all(np.allclose(matrix.sum(axis=axis), 1) for matrix in self._expected() for axis in (0, 1))

    @functools.cached_property
    def connected(self) -> bool:
        """Whether information from every node reaches every other node, over the links of one period."""
        return bool(nx.is_strongly_connected(self._union()))

    @functools.cached_property
    def bipartite(self) -> bool:
        """Whether the nodes fall into two sides, the same in every round, with all links between the sides.

        Always False if graphs are redrawn.
        """
        # The union of one period does not contain the links of later redraws.
        return not has_redraws(self.settings) and bool(nx.is_bipartite(self._union().to_undirected()))

    @functools.cached_property
    def spectral_gap(self) -> float:
        """The rate at which mixing removes differences between nodes: 1 - |lambda_2(W)|, between 0 and 1.

        For a time-varying topology, per round: 1 - |lambda_2(P)|^(1 / period) of the product P of one period.
        """
        # W_period ... W_2 W_1: the matrix of a later round multiplies from the left.
        product = functools.reduce(lambda before, matrix: matrix @ before, self._expected())
        moduli = np.sort(np.abs(np.linalg.eigvals(product)))
        # The root would enlarge a rounding error: 1e-16 to the power 1/8 is 0.01.
        second = moduli[-2] if self.nodes > 1 and moduli[-2] > EIGENVALUE_TOLERANCE else 0.0
        return float(1 - second ** (1 / self.period))

    def _mixing(self, round: int) -> MixingMatrix:
        settings, seed, own = graph_at_round(self.settings, self.seed, round)
        mixing = _lossless(settings, self.nodes, seed, first_round_of_graph(settings, self.nodes, own))
        if not drop_probability(settings):
            return mixing
        # A stream per round: a resumed run and every rank lose the same links.
        generator = np.random.default_rng(derive_seed(seed, "topology drop", own))
        return MixingMatrix(drop_links(mixing.matrix, drop_probability(settings), generator))

    def _expected(self) -> Iterator[Matrix]:
        for round in range(self.period):
            settings, seed, own = graph_at_round(self.settings, self.seed, round)
            matrix = _lossless(
                settings, self.nodes, seed, first_round_of_graph(settings, self.nodes, own)
            ).matrix
            lost = drop_probability(settings)
            yield (1 - lost) * matrix + lost * np.eye(self.nodes)

    def _union(self) -> nx.DiGraph:
        links = functools.reduce(np.logical_or, (matrix > 0 for matrix in self._expected()))
        return nx.from_numpy_array(links & ~np.eye(self.nodes, dtype=bool), create_using=nx.DiGraph)


@functools.lru_cache(maxsize=TOPOLOGY_CACHE_SIZE)
def build_topology(settings: TopologyConfig, nodes: int, seed: int) -> Topology:
    """Return the topology of a run; the same arguments give the same object.

    Args:
        settings: topology of the run.
        nodes: number of nodes.
        seed: seed of random graphs and lost links.

    Raises:
        UserError: with the key and the fix, if the graph does not exist for this number of nodes.
    """
    made = Topology(settings, nodes, seed)
    # Matrices are computed on demand: without these calls, an impossible graph would fail during training.
    for round in range(made.period):
        made.at(round)
    return made


@functools.lru_cache(maxsize=TOPOLOGY_CACHE_SIZE)
def _lossless(settings: GraphConfig, nodes: int, seed: int, round: int) -> MixingMatrix:
    links = build_graph(settings, nodes, seed, round)
    if isinstance(settings, UndirectedGraphConfig):
        return MixingMatrix(undirected_weights(links, settings.weights))
    return MixingMatrix(push_sum_weights(links))


def _mutual(matrix: Matrix) -> bool:
    return bool(np.array_equal(matrix > 0, matrix.T > 0))
