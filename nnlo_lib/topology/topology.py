"""Topology of a run: the mixing matrix of each round, the properties of the graphs, and the check of an algorithm's requirements."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from nnlo_lib.config import Run
from nnlo_lib.config.algorithm_base import GraphProperty
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.reader import LidarReaderConfig
from nnlo_lib.config.topology import (
    BaseKGraphConfig,
    DiskGraphConfig,
    DrawnGraphConfig,
    EquiTopoGraphConfig,
    GraphConfig,
    GraphSequenceConfig,
    OnePeerExponentialGraphConfig,
    TopologyConfig,
    UndirectedGraphConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.base_k_graph import base_k_rounds
from nnlo_lib.topology.graphs import build_graph, ceil_log2, node_positions
from nnlo_lib.topology.mixing_matrix import (
    Matrix,
    MixingMatrix,
    drop_links,
    given_weights,
    push_sum_weights,
    undirected_weights,
)

if TYPE_CHECKING:
    from nnlo_lib.data.lidar.trajectories import Building

TOPOLOGY_CACHE_SIZE = 64  # entries of each cache: rounds, topologies, matrices
NOISE_DECAY = 0.9  # gamma of the effective number of neighbors: noise of about the last ten rounds
EIGENVALUE_TOLERANCE = 1e-12  # eigenvalues of smaller modulus are rounding errors


class Topology:
    """The mixing of every round of a run: the nodes that exchange parameters, and their weights.

    The properties (connected, spectral_gap, ...) hold over one period: one round if `static`, else the rounds
    until the graphs repeat. In this period, redrawn graphs count as drawn in its rounds, and links
    that may be lost have their expected weight. `building` is where nodes with positions on a trajectory move.
    """

    def __init__(
        self, settings: TopologyConfig, nodes: int, seed: int, building: "Building | None" = None
    ) -> None:
        self.settings, self._building = settings, building
        self.nodes = nodes
        self.seed = seed
        self.period = period(settings, nodes)
        has_drops = any(drop_probability(graph) for graph in member_graphs(settings))
        self.static = self.period == 1 and not has_redraws(settings) and not has_drops
        self._at = functools.lru_cache(maxsize=TOPOLOGY_CACHE_SIZE)(self._mixing)

    def at(self, round: int) -> MixingMatrix:
        """Return the mixing matrix of a round, the same object for every rank; raise UserError if it could not be drawn."""
        return self._at(0 if self.static else round)

    def positions(self, round: int) -> Matrix | None:
        """Return where the nodes are in a round, (nodes, 2); None unless they are given."""
        settings, _, own = graph_at_round(self.settings, self.seed, round)
        if not isinstance(settings, DiskGraphConfig) or settings.positions == "random":
            return None
        first = first_round_of_graph(settings, self.nodes, own)
        positions: Matrix = node_positions(settings, self.nodes, self._building)[first]
        return positions

    @functools.cached_property
    def directed(self) -> bool:
        """Whether in some round a node sends to another node without receiving from it."""
        return any(not np.array_equal(matrix > 0, matrix.T > 0) for matrix in self._expected())

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

    @functools.cached_property
    def effective_neighbors(self) -> float | None:
        """Number of nodes whose mean varies as much as a node's vector does if mixing averages noise (Vogels et al. 2022).

        In each round, x <- W (sqrt(gamma) x + noise), of which alone n_W(gamma) = 1 / (1 - gamma) / mean variance of an x: from 1
        without links to the number of nodes. None if mixing does not keep the mean.
        """
        if not self.doubly_stochastic:
            return None
        matrices, eye = list(self._expected()), np.eye(self.nodes)

        def after_period(covariance: Matrix) -> list[Matrix]:
            rounds = itertools.accumulate(
                matrices, lambda before, w: w @ (NOISE_DECAY * before + eye) @ w.T, initial=covariance
            )
            return list(rounds)[1:]

        # The sum of P^k Q P'^k over all k, twice as many of them in each turn, is the covariance after many periods.
        total = after_period(np.zeros_like(eye))[-1]
        power = NOISE_DECAY ** (self.period / 2) * functools.reduce(lambda before, w: w @ before, matrices)
        while np.abs(power).max() > EIGENVALUE_TOLERANCE:
            total, power = total + power @ total @ power.T, power @ power
        variance = np.mean([np.trace(each) for each in after_period(total)]) / self.nodes
        return float(1 / (1 - NOISE_DECAY) / variance)

    def _before_losses(self, round: int) -> tuple[MixingMatrix, float]:
        """Return the mixing of a round without losses, and the probability that a link is lost."""
        settings, seed, own = graph_at_round(self.settings, self.seed, round)
        first = first_round_of_graph(settings, self.nodes, own)
        return _lossless(settings, self.nodes, seed, first, self._building), drop_probability(settings)

    def _mixing(self, round: int) -> MixingMatrix:
        mixing, drop = self._before_losses(round)
        if not drop:
            return mixing
        # A stream per round: a resumed run and every rank lose the same links.
        _, seed, own = graph_at_round(self.settings, self.seed, round)
        generator = np.random.default_rng(derive_seed(seed, "topology drop", own))
        return MixingMatrix(drop_links(mixing.matrix, drop, generator))

    def _expected(self) -> Iterator[Matrix]:
        for mixing, drop in map(self._before_losses, range(self.period)):
            yield (1 - drop) * mixing.matrix + drop * np.eye(self.nodes)

    def _union(self) -> nx.DiGraph:
        links = functools.reduce(np.logical_or, (matrix > 0 for matrix in self._expected()))
        return nx.from_numpy_array(links & ~np.eye(self.nodes, dtype=bool), create_using=nx.DiGraph)


def build_topology(
    settings: TopologyConfig, nodes: int, seed: int, data: DataConfig | None = None
) -> Topology:
    """Return the topology of a run, of robots in `data` if they move; the same arguments give the same object.

    Raises UserError if the graph does not exist for this number of nodes.
    """
    building = data and moves(settings) and building_of(data)
    return _build_topology(settings, nodes, seed, building or None)


def building_of(data: DataConfig) -> "Building":
    """Return the building of a data set with robots."""
    # Imported here, because only graphs of robots need SciPy.
    from nnlo_lib.data.lidar.trajectories import Building

    reader = data.reader or LidarReaderConfig()
    return Building(
        Path(data.source or "."),
        **{each.name: getattr(reader, each.name) for each in fields(Building) if each.name != "folder"},
    )


@functools.lru_cache(maxsize=TOPOLOGY_CACHE_SIZE)
def _build_topology(settings: TopologyConfig, nodes: int, seed: int, building: "Building | None") -> Topology:
    made = Topology(settings, nodes, seed, building)
    # Matrices are computed on demand: without these calls, an impossible graph would fail during training.
    for round in range(made.period):
        made.at(round)
    return made


@functools.lru_cache(maxsize=TOPOLOGY_CACHE_SIZE)
def _lossless(
    settings: GraphConfig, nodes: int, seed: int, round: int, building: "Building | None"
) -> MixingMatrix:
    links = build_graph(settings, nodes, seed, round, building)
    if isinstance(settings, UndirectedGraphConfig):
        return MixingMatrix(undirected_weights(links, settings.weights))
    is_weighted = isinstance(settings, BaseKGraphConfig | EquiTopoGraphConfig)
    return MixingMatrix(given_weights(links) if is_weighted else push_sum_weights(links))


def graph_at_round(settings: TopologyConfig, seed: int, round: int) -> tuple[GraphConfig, int, int]:
    """Return the graph of a run's round: its settings, seed and own round, the number of earlier rounds that used this graph."""
    if not isinstance(settings, GraphSequenceConfig):
        return settings, seed, round
    turns, now = divmod(round, settings.rounds)
    cycle, index = divmod(turns, len(settings.of))
    return (
        settings.of[index],
        # Random graphs with equal settings must differ within a sequence.
        derive_seed(seed, "topology of a sequence", index),
        # Rounds of other graphs do not count, so that a graph continues where its last turn ended.
        cycle * settings.rounds + now,
    )


def first_round_of_graph(settings: GraphConfig, nodes: int, round: int) -> int:
    """Return the first own round that has the same graph as the own round `round`."""
    if isinstance(settings, DrawnGraphConfig) and settings.redraw_every:
        return round - round % settings.redraw_every
    if isinstance(settings, EquiTopoGraphConfig):
        return round
    return round % period(settings, nodes)


def period(settings: TopologyConfig, nodes: int) -> int:
    """Return the number of rounds after which the graphs repeat, redrawn graphs aside."""
    match settings:
        case OnePeerExponentialGraphConfig():
            return max(1, ceil_log2(nodes))
        case BaseKGraphConfig(k=k):
            return max(1, len(base_k_rounds(nodes, k)))
        case EquiTopoGraphConfig():
            return max(1, nodes - 1)
        case DiskGraphConfig(rounds=int(rounds)):
            return rounds
        case GraphSequenceConfig(of=of, rounds=rounds):
            # A pass through the sequence takes len(of) * rounds rounds; in it, the own round of each graph
            # advances by `rounds`.
            return len(of) * math.lcm(rounds, *(period(graph, nodes) for graph in of))
        case _:
            return 1


def drop_probability(settings: GraphConfig) -> float:
    """Return the probability that a link is lost in a round."""
    return settings.drop if isinstance(settings, UndirectedGraphConfig) else 0.0


def has_redraws(settings: TopologyConfig) -> bool:
    """Return True if graphs are redrawn during the run."""
    graphs = member_graphs(settings)
    return any(
        isinstance(each, EquiTopoGraphConfig) or getattr(each, "redraw_every", None) for each in graphs
    )


def moves(settings: TopologyConfig) -> bool:
    """Return True if links follow from the positions of moving robots."""
    graphs = member_graphs(settings)
    return any(isinstance(each, DiskGraphConfig) and each.positions == "trajectory" for each in graphs)


def member_graphs(settings: TopologyConfig) -> tuple[GraphConfig, ...]:
    """Return the settings of the graphs that take turns."""
    return settings.of if isinstance(settings, GraphSequenceConfig) else (settings,)


# What an algorithm can require of a graph: the check, and what a message asks for.
GRAPH_PROPERTIES: dict[GraphProperty, tuple[Callable[[Topology], bool], str]] = {
    "connected": (
        lambda graph: graph.connected, "a connected graph, so that every node reaches all others; add links",
    ),
    "symmetric": (lambda graph: graph.symmetric, "a symmetric mixing matrix; use an undirected graph"),
    "doubly stochastic": (
        lambda graph: graph.doubly_stochastic,
        "a doubly stochastic mixing matrix, so that all nodes have equal weight; set topology.weights: metropolis",
    ),
    "static": (
        lambda graph: graph.static,
        "a static graph, because nodes keep roles or state of their links from round to round; use a single graph whose "
        "nodes do not move, without drop and redraw_every",
    ),
    "bipartite": (
        lambda graph: graph.bipartite,
        "a bipartite graph, because active nodes send requests to passive nodes only; use complete_bipartite, path, star, "
        "grid, hypercube, or cycle with an even number of nodes",
    ),
    "eigenvalues above -1/3": (
        # The margin is for rounding errors: an eigenvalue of exactly -1/3 must not pass.
        lambda graph: bool(np.linalg.eigvalsh(graph.at(0).matrix)[0] > -1 / 3 + 1e-9),
        "a mixing matrix with eigenvalues above -1/3; set topology.weights: lazy_metropolis",
    ),
}  # fmt: skip


def topology_error(run: Run, seed: int) -> str | None:
    """Return why the run's topology does not suit its algorithm, or None."""
    row, workers = run.algorithm.capabilities, run.workers
    if not row.graph_properties:
        return None
    try:
        graph = build_topology(run.topology, workers, seed, run.data)
    except UserError as error:
        return str(error)
    # With compressed changes, nodes keep public copies of the neighbors that they had in round 0.
    stays = run.compression.name != "none" and row.compresses_changes
    wanted: tuple[GraphProperty, ...] = (*row.graph_properties, "static") if stays else row.graph_properties
    for has_property, needed in map(GRAPH_PROPERTIES.__getitem__, wanted):
        if not has_property(graph):
            return f"{run.topology.name} with {workers} nodes does not suit {run.algorithm.name}, which needs {needed}"
    return None
