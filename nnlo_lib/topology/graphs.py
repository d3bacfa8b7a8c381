"""Build the graph on nodes 0 ... nodes - 1 that the settings describe."""

import itertools
import math
from collections.abc import Iterable
from typing import assert_never

import networkx as nx

from nnlo_lib.config.topology import (
    CompleteBipartiteGraphConfig,
    CompleteGraphConfig,
    CycleGraphConfig,
    DelaunayGraphConfig,
    DirectedEdgesGraphConfig,
    DiskGraphConfig,
    Edge,
    EdgesGraphConfig,
    ErdosRenyiGraphConfig,
    ExponentialGraphConfig,
    GraphConfig,
    GridGraphConfig,
    HypercubeGraphConfig,
    OnePeerExponentialGraphConfig,
    PathGraphConfig,
    RandomGraphConfig,
    RandomRegularGraphConfig,
    RectangularGraphConfig,
    StarGraphConfig,
    TorusGraphConfig,
    WattsStrogatzGraphConfig,
    WheelGraphConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.topology.random_graphs import random_graph


def build_graph(settings: GraphConfig, nodes: int, seed: int, round: int) -> nx.Graph:
    """Return the graph of a round: undirected, or a DiGraph with edges from sender to receiver.

    A pure function of its arguments.

    Args:
        settings: settings of the graph.
        nodes: number of nodes.
        seed: seed of random graphs.
        round: own round of the graph (see `graph_at_round`); for a redrawn graph, the round of the draw.

    Raises:
        UserError: if the graph does not exist for this number of nodes.
    """
    match settings:
        case WheelGraphConfig():
            return nx.wheel_graph(nodes)
        case CycleGraphConfig():
            # networkx gives a cycle of one node a self-loop.
            return nx.cycle_graph(nodes) if nodes > 2 else nx.path_graph(nodes)
        case StarGraphConfig():
            return nx.star_graph(nodes - 1)
        case PathGraphConfig():
            return nx.path_graph(nodes)
        case CompleteGraphConfig():
            return nx.complete_graph(nodes)
        case GridGraphConfig():
            return grid(settings, nodes, periodic=False)
        case TorusGraphConfig():
            return grid(settings, nodes, periodic=True)
        case HypercubeGraphConfig():
            return hypercube(nodes)
        case ExponentialGraphConfig():
            return shifts(nodes, range(ceil_log2(nodes)))
        case OnePeerExponentialGraphConfig():
            # For a single node, ceil_log2 is 0, by which `round` cannot be divided.
            return shifts(nodes, [round % ceil_log2(nodes)] if nodes > 1 else [])
        case CompleteBipartiteGraphConfig():
            return add_links(nx.Graph(), nodes, itertools.product(range(0, nodes, 2), range(1, nodes, 2)))
        case EdgesGraphConfig():
            return add_links(nx.Graph(), nodes, checked_edges(settings.edges, nodes))
        case DirectedEdgesGraphConfig():
            return add_links(nx.DiGraph(), nodes, checked_edges(settings.edges, nodes))
        case (
            ErdosRenyiGraphConfig()
            | RandomGraphConfig()
            | WattsStrogatzGraphConfig()
            | RandomRegularGraphConfig()
            | DiskGraphConfig()
            | DelaunayGraphConfig()
        ):
            return random_graph(settings, nodes, seed, round)
        case _:
            assert_never(settings)


def add_links(graph: nx.Graph, nodes: int, edges: Iterable[Edge]) -> nx.Graph:
    """Add nodes and edges to a graph and return it.

    Args:
        graph: an empty graph, directed or undirected; changed in place.
        nodes: number of nodes; nodes without edges are added, too.
        edges: pairs of nodes.
    """
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges)
    return graph


def ceil_log2(nodes: int) -> int:
    """Return ceil(log2 nodes), the number of powers of two below `nodes`."""
    return (nodes - 1).bit_length()


def shifts(nodes: int, exponents: Iterable[int]) -> nx.DiGraph:
    """Return the directed graph in which i sends to i + 2^k, for each k in `exponents`."""
    pairs = itertools.product(range(nodes), exponents)
    return add_links(nx.DiGraph(), nodes, ((i, (i + 2**k) % nodes) for i, k in pairs))


def hypercube(nodes: int) -> nx.Graph:
    """Return the graph that links numbers which differ in one bit; raise UserError unless nodes = 2^k."""
    if nodes & (nodes - 1):
        raise UserError(
            f"topology.name: hypercube needs a power of two as the number of nodes ({nodes}); "
            f"use {2 ** ceil_log2(nodes)} nodes or another graph"
        )
    pairs = itertools.product(range(nodes), range(ceil_log2(nodes)))
    return add_links(nx.Graph(), nodes, ((i, i ^ 2**k) for i, k in pairs))


def grid(settings: RectangularGraphConfig, nodes: int, periodic: bool) -> nx.Graph:
    """Return a grid of rows and columns.

    Args:
        settings: numbers of rows and columns, if configured.
        nodes: number of nodes, numbered row by row.
        periodic: True to link opposite sides (a torus).
    """
    rows, columns = rectangle(settings, nodes)
    graph = nx.grid_2d_graph(rows, columns, periodic=periodic)
    # networkx labels nodes by (row, column): in sorted order, they are numbered row by row.
    return nx.convert_node_labels_to_integers(graph, ordering="sorted")


def rectangle(settings: RectangularGraphConfig, nodes: int) -> tuple[int, int]:
    """Return the numbers of rows and columns; if both are missing, of the most square rectangle.

    Raises UserError if rows times columns is not the number of nodes.
    """
    square = max(side for side in range(1, math.isqrt(nodes) + 1) if nodes % side == 0)
    rows = settings.rows or (nodes // settings.columns if settings.columns else square)
    columns = settings.columns or nodes // rows
    if rows * columns != nodes:
        given = " and ".join(
            f"{key} {value}" for key, value in settings if key in ("rows", "columns") and value
        )
        raise UserError(
            f"topology.rows: no grid with {given} has {nodes} nodes; change or remove topology.rows and "
            f"topology.columns"
        )
    return rows, columns


def checked_edges(edges: tuple[Edge, ...], nodes: int) -> tuple[Edge, ...]:
    """Return `edges`; raise UserError if one of them names a node that does not exist."""
    for one, other in edges:
        if max(one, other) >= nodes:
            raise UserError(
                f"topology.edges: [{one}, {other}] contains a node that does not exist (nodes: 0 to {nodes - 1}); "
                "remove the edge or use more nodes"
            )
    return edges
