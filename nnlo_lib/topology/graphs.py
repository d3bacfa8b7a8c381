"""Graphs between nodes: regular ones, given edges, and random ones that are drawn until connected."""

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config.topology import (
    DiskGraphConfig,
    Edge,
    EquiTopoGraphConfig,
    GraphConfig,
    RectangularGraphConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.base_k_graph import base_k_graph

if TYPE_CHECKING:
    from nnlo_lib.data.lidar.trajectories import Building

CONNECTIVITY_TOLERANCE = 0.01  # absolute, of the algebraic connectivity


def build_graph(
    settings: GraphConfig, nodes: int, seed: int, round: int, building: "Building | None" = None
) -> nx.Graph:
    """Return the graph of a round: undirected, or a DiGraph with edges from sender to receiver.

    A pure function of its arguments: `round` is the graph's own (see `graph_at_round`), for a redrawn graph that of the draw;
    the nodes move in `building`. Raises UserError if the graph does not exist for this number of nodes.
    """
    if isinstance(settings, DiskGraphConfig) and settings.positions != "random":
        return disk(settings, node_positions(settings, nodes, building)[round])
    if isinstance(settings, EquiTopoGraphConfig):
        return equitopo(settings, nodes, seed, round)
    if settings.name in GRAPHS:
        return GRAPHS[settings.name](settings, nodes, round)
    return random_graph(settings, nodes, seed, round)


def add_links(graph: nx.Graph, nodes: int, edges: Iterable[Edge]) -> nx.Graph:
    """Add nodes, also those without edges, and edges to an empty graph; return it."""
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges)
    return graph


def shifts(nodes: int, exponents: Iterable[int]) -> nx.DiGraph:
    """Return the directed graph in which i sends to i + 2^k, for each k in `exponents`."""
    pairs = itertools.product(range(nodes), exponents)
    return add_links(nx.DiGraph(), nodes, ((i, (i + 2**k) % nodes) for i, k in pairs))


def equitopo(settings: EquiTopoGraphConfig, nodes: int, seed: int, round: int) -> nx.Graph:
    """Return the links of a round, with `weight`, of algorithm 1 or 2 (undirected) of Song et al. 2022: i with i + shift.

    The nodes - 1 shifts take turns in an order that is drawn for each pass, where the paper draws each round apart, and pairs
    are found from a random node on: it meets all others within a pass, so that each pass connects the nodes.
    """
    graph = nx.DiGraph() if settings.directed else nx.Graph()
    turn, place = divmod(round, max(1, nodes - 1))
    draw = np.random.default_rng(derive_seed(seed, "equitopo", turn))
    start, shift = int(draw.integers(nodes)), 1 + int(draw.permutation(max(1, nodes - 1))[place])
    add_links(graph, nodes, ())
    for one in ((start + each) % nodes for each in range(nodes if nodes > 1 else 0)):
        other = (one + shift) % nodes
        if settings.directed or not (graph.degree(one) or graph.degree(other)):
            graph.add_edge(one, other, weight=settings.eta * (nodes - 1) / nodes)
    return graph


def ceil_log2(nodes: int) -> int:
    """Return ceil(log2 nodes), the number of powers of two below `nodes`."""
    return (nodes - 1).bit_length()


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
    """Return a grid whose nodes are numbered row by row; `periodic` links opposite sides (a torus)."""
    rows, columns = rectangle(settings, nodes)
    graph = nx.grid_2d_graph(rows, columns, periodic=periodic)
    # networkx labels nodes by (row, column): in sorted order, they are numbered row by row.
    return nx.convert_node_labels_to_integers(graph, ordering="sorted")


def rectangle(settings: RectangularGraphConfig, nodes: int) -> tuple[int, int]:
    """Return the numbers of rows and columns, by default of the most square rectangle; raise UserError if they do not fit."""
    square = max(side for side in range(1, math.isqrt(nodes) + 1) if nodes % side == 0)
    rows = settings.rows or (nodes // settings.columns if settings.columns else square)
    columns = settings.columns or nodes // rows
    if rows * columns != nodes:
        keys = [key for key in ("rows", "columns") if getattr(settings, key)]
        given = " and ".join(f"{key} {getattr(settings, key)}" for key in keys)
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


# Graphs that no draw decides, by name: of the settings, the number of nodes and the round.
GRAPHS: dict[str, Callable[[Any, int, int], nx.Graph]] = {
    "wheel": lambda _, nodes, __: nx.wheel_graph(nodes),
    # networkx gives a cycle of one node a self-loop.
    "cycle": lambda _, nodes, __: nx.cycle_graph(nodes) if nodes > 2 else nx.path_graph(nodes),
    "star": lambda _, nodes, __: nx.star_graph(nodes - 1),
    "path": lambda _, nodes, __: nx.path_graph(nodes),
    "complete": lambda _, nodes, __: nx.complete_graph(nodes),
    "grid": lambda settings, nodes, _: grid(settings, nodes, periodic=False),
    "torus": lambda settings, nodes, _: grid(settings, nodes, periodic=True),
    "hypercube": lambda _, nodes, __: hypercube(nodes),
    "exponential": lambda _, nodes, __: shifts(nodes, range(ceil_log2(nodes))),
    # For a single node, ceil_log2 is 0, by which `round` cannot be divided.
    "one_peer_exponential": lambda _, nodes, round: shifts(
        nodes, [round % ceil_log2(nodes)] if nodes > 1 else []
    ),
    "base_k": lambda settings, nodes, round: base_k_graph(nodes, settings.k, round),
    "complete_bipartite": lambda _, nodes, __: add_links(
        nx.Graph(), nodes, itertools.product(range(0, nodes, 2), range(1, nodes, 2))
    ),
    "edges": lambda settings, nodes, _: add_links(nx.Graph(), nodes, checked_edges(settings.edges, nodes)),
    "directed_edges": lambda settings, nodes, _: add_links(
        nx.DiGraph(), nodes, checked_edges(settings.edges, nodes)
    ),
}


# Draws of a random graph, connected or not, by name: of the settings, the number of nodes and the generator.
DRAWS: dict[str, Callable[[Any, int, np.random.Generator], nx.Graph]] = {
    "erdos_renyi": lambda settings, nodes, draw: nx.fast_gnp_random_graph(nodes, settings.p, seed=draw),
    "random": lambda settings, nodes, draw: nx.fast_gnp_random_graph(nodes, settings.p, seed=draw),
    "watts_strogatz": lambda settings, nodes, draw: nx.watts_strogatz_graph(
        nodes, settings.k, settings.p, seed=draw
    ),
    "random_regular": lambda settings, nodes, draw: nx.random_regular_graph(
        settings.degree, nodes, seed=draw
    ),
    "disk": lambda settings, nodes, draw: disk(settings, draw.random((nodes, 2))),
    "delaunay": lambda _, nodes, draw: delaunay(draw.random((nodes, 2))),
}


def random_graph(settings: Any, nodes: int, seed: int, round: int) -> nx.Graph:
    """Return the first graph drawn from the stream of (seed, round) that is connected, or has the required connectivity.

    Raises UserError if `gen_attempts` draws find no such graph, or if no draw ever could.
    """
    refuse_impossible(settings, nodes)
    target = settings.connectivity if isinstance(settings, DiskGraphConfig) else None
    # A stream per round, so that a resumed run need not draw the graphs of earlier rounds.
    generator = np.random.default_rng(derive_seed(seed, "topology", round))
    for _ in range(settings.gen_attempts):
        graph = DRAWS[settings.name](settings, nodes, generator)
        if target is None:
            is_found = nx.is_connected(graph)
        else:
            found = algebraic_connectivity(nx.to_numpy_array(graph))
            is_found = abs(found - target) <= CONNECTIVITY_TOLERANCE
        if is_found:
            return graph
    key = {"disk": "radius", "random_regular": "degree", "delaunay": "name"}.get(settings.name, "p")
    wanted = f"is connected at {key} {getattr(settings, key)}"
    if target is not None:
        key = "connectivity"
        wanted = f"has an algebraic connectivity within {CONNECTIVITY_TOLERANCE} of {target:g}"
    drawn = f" drawn for round {round} of {settings.name}" if round else ""
    raise UserError(
        f"topology.{key}: none of {settings.gen_attempts} graphs of {nodes} nodes{drawn} {wanted}; "
        f"change {key} or raise topology.gen_attempts"
    )


def refuse_impossible(settings: Any, nodes: int) -> None:
    """Raise UserError if no draw can give the required graph."""
    reason = ""
    if settings.name == "watts_strogatz" and settings.k >= nodes:
        reason = f"k: {settings.k} neighbors need more than {nodes} nodes; use a smaller k"
    elif settings.name == "random_regular" and settings.degree >= nodes:
        reason = f"degree: {settings.degree} neighbors need more than {nodes} nodes; use a smaller degree"
    elif settings.name == "random_regular" and settings.degree * nodes % 2:
        reason = (
            f"degree: no graph of {nodes} nodes has degree {settings.degree}, because degree x nodes must be even; use "
            f"{settings.degree - 1} or {settings.degree + 1}"
        )
    elif (
        settings.name == "disk"
        and settings.connectivity is not None
        and (nodes < 2 or settings.connectivity > nodes + CONNECTIVITY_TOLERANCE)
    ):
        reason = (
            f"connectivity: {settings.connectivity:g} is impossible with {nodes} nodes; the largest value, of the complete "
            f"graph, is {nodes}; use a smaller value"
        )
    if reason:
        raise UserError(f"topology.{reason}")


def disk(settings: DiskGraphConfig, points: NDArray[np.float64]) -> nx.Graph:
    """Return the graph that links points at most a radius apart; `points` has shape (nodes, 2).

    The radius is the configured one, or the smallest one that gives the configured connectivity.
    """
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    radius = settings.radius
    if settings.connectivity is not None:
        # The smallest radius of this connectivity minus the tolerance, or else the largest distance. The connectivity never
        # falls when links are added, and the graph changes only at distances between points.
        radii = np.unique(distance)
        place = bisect.bisect_left(
            radii,
            settings.connectivity - CONNECTIVITY_TOLERANCE,
            # The links of points to themselves cancel out in the Laplacian.
            key=lambda radius: algebraic_connectivity(1.0 * (distance <= radius)),
        )
        radius = radii[min(place, radii.size - 1)]
    # Above the diagonal, because the distance of each point to itself is 0: these are no links.
    return nx.from_numpy_array(np.triu(distance <= radius, 1))


@functools.lru_cache(maxsize=4)
def node_positions(settings: DiskGraphConfig, nodes: int, building: "Building | None") -> NDArray[np.float64]:
    """Return where the nodes are at the beginning of each round of their paths, (rounds, nodes, 2).

    The longer side of a building is 2. Raises UserError if a file has no positions, unless there is one path for each node, and
    unless all nodes are connected by the links of all rounds together.
    """
    # Imported here, because only given positions need SciPy.
    from nnlo_lib.data.lidar.trajectories import read_places

    files, rounds = settings.positions, settings.rounds or 1
    if isinstance(files, tuple):
        paths = [read_places(Path(file)) for file in files]
    elif files == "trajectory" and building:
        paths = [*building.robot_paths()]
    else:
        paths = [*read_places(Path(files))[:, None]]
    if len(paths) != nodes:
        raise UserError(
            f"topology.positions: positions of {len(paths)} nodes, but the graph has {nodes} nodes; set parallel.ranks: {len(paths)}"
        )
    positions = np.stack([path[np.arange(rounds) * len(path) // rounds] for path in paths], 1)
    distance = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=3)
    # The tree that connects all nodes by their nearest encounters; networkx takes a distance of 0 for no link.
    tree = nx.minimum_spanning_edges(nx.from_numpy_array(distance.min(0) + 1e-9), data=True)
    one, other, _ = max(tree, key=lambda edge: edge[2]["weight"], default=(0, 0, None))
    round = int(distance[:, one, other].argmin())
    if settings.radius is not None and distance[round, one, other] > settings.radius:
        x, y = positions[round, one]
        raise UserError(
            f"topology.radius: {settings.radius:g} never connects all nodes; nodes {one} and {other} are nearest in round "
            f"{round}, {distance[round, one, other]:.3g} apart, at x {x:.3g}, y {y:.3g}; use a larger radius"
        )
    return positions


def algebraic_connectivity(links: NDArray[np.float64]) -> float:
    """Return the second smallest eigenvalue of the Laplacian of an adjacency matrix (Fiedler 1973)."""
    return float(np.linalg.eigvalsh(np.diag(links.sum(axis=1)) - links)[1])


def delaunay(points: NDArray[np.float64]) -> nx.Graph:
    """Return the graph of the triangles whose circumcircles contain no point; `points` has shape (nodes, 2)."""
    if len(points) < 4:
        # Up to three points are all linked; Qhull needs three at least.
        return nx.complete_graph(len(points))
    # Imported here, because scipy.spatial takes longer to import than all graphs together.
    from scipy.spatial import Delaunay

    starts, neighbors = Delaunay(points).vertex_neighbor_vertices
    graph = nx.empty_graph(len(points))
    ends = np.repeat(graph.nodes, np.diff(starts)).tolist()
    graph.add_edges_from(zip(ends, neighbors.tolist(), strict=True))
    return graph
