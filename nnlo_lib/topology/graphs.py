"""Graphs between nodes: regular ones, given edges, and random ones that are drawn until connected."""

import bisect
import functools
import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import networkx as nx
import numpy as np
from numpy.typing import NDArray

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
from nnlo_lib.core.rng import derive_seed

if TYPE_CHECKING:
    from nnlo_lib.data.lidar.trajectories import Building

RandomGraph = (
    ErdosRenyiGraphConfig
    | RandomGraphConfig
    | WattsStrogatzGraphConfig
    | RandomRegularGraphConfig
    | DiskGraphConfig
    | DelaunayGraphConfig
)

CONNECTIVITY_TOLERANCE = 0.01  # absolute, of the algebraic connectivity


def build_graph(
    settings: GraphConfig, nodes: int, seed: int, round: int, building: "Building | None" = None
) -> nx.Graph:
    """Return the graph of a round: undirected, or a DiGraph with edges from sender to receiver.

    A pure function of its arguments.

    Args:
        round: own round of the graph (see `graph_at_round`); for a redrawn graph, the round of the draw.
        building: building in which the nodes move, for `positions: trajectory`.

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
        case DiskGraphConfig() if settings.positions != "random":
            return disk(settings, node_positions(settings, nodes, building)[round])
        case _:
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


def random_graph(settings: RandomGraph, nodes: int, seed: int, round: int) -> nx.Graph:
    """Return the first acceptable (see `is_acceptable`) graph drawn from the stream of (seed, round).

    Raises:
        UserError: if `gen_attempts` draws find no acceptable graph, or if no draw ever could.
    """
    refuse_impossible(settings, nodes)
    # A stream per round, so that a resumed run need not draw the graphs of earlier rounds.
    generator = np.random.default_rng(derive_seed(seed, "topology", round))
    for _ in range(settings.gen_attempts):
        graph = draw(settings, nodes, generator)
        if is_acceptable(graph, settings):
            return graph
    key, searched = draw_target(settings)
    drawn = f" drawn for round {round} of {settings.name}" if round else ""
    raise UserError(
        f"topology.{key}: none of {settings.gen_attempts} graphs of {nodes} nodes{drawn} {searched}; "
        f"change {key} or raise topology.gen_attempts"
    )


def refuse_impossible(settings: RandomGraph, nodes: int) -> None:
    """Raise UserError if no draw can give the required graph."""
    match settings:
        case WattsStrogatzGraphConfig(k=k) if k >= nodes:
            raise UserError(f"topology.k: {k} neighbors need more than {nodes} nodes; use a smaller k")
        case RandomRegularGraphConfig(degree=degree) if degree >= nodes:
            raise UserError(
                f"topology.degree: {degree} neighbors need more than {nodes} nodes; use a smaller degree"
            )
        case RandomRegularGraphConfig(degree=degree) if degree * nodes % 2:
            raise UserError(
                f"topology.degree: no graph of {nodes} nodes has degree {degree}, because degree x nodes must be "
                f"even; use {degree - 1} or {degree + 1}"
            )
        case DiskGraphConfig(connectivity=float(target)) if (
            nodes < 2 or target > nodes + CONNECTIVITY_TOLERANCE
        ):
            raise UserError(
                f"topology.connectivity: {target:g} is impossible with {nodes} nodes; the largest value, of the "
                f"complete graph, is {nodes}; use a smaller value"
            )


def draw(settings: RandomGraph, nodes: int, generator: np.random.Generator) -> nx.Graph:
    """Return one random graph, connected or not; `generator` advances."""
    match settings:
        case ErdosRenyiGraphConfig() | RandomGraphConfig():
            return nx.fast_gnp_random_graph(nodes, settings.p, seed=generator)
        case WattsStrogatzGraphConfig():
            return nx.watts_strogatz_graph(nodes, settings.k, settings.p, seed=generator)
        case RandomRegularGraphConfig():
            return nx.random_regular_graph(settings.degree, nodes, seed=generator)
        case DiskGraphConfig():
            return disk(settings, generator.random((nodes, 2)))
        case DelaunayGraphConfig():
            return delaunay(generator.random((nodes, 2)))
        case _:
            assert_never(settings)


def is_acceptable(graph: nx.Graph, settings: RandomGraph) -> bool:
    """Return True if a drawn graph is connected.

    For a disk graph with a required `connectivity`, return True if it is within the tolerance instead.
    """
    if isinstance(settings, DiskGraphConfig) and settings.connectivity is not None:
        return (
            abs(algebraic_connectivity(nx.to_numpy_array(graph)) - settings.connectivity)
            <= CONNECTIVITY_TOLERANCE
        )
    return bool(nx.is_connected(graph))


def draw_target(settings: RandomGraph) -> tuple[str, str]:
    """Return the key that specifies the required graph, and the requirement as a predicate for messages."""
    match settings:
        case DiskGraphConfig(connectivity=float(target)):
            return (
                "connectivity",
                f"has an algebraic connectivity within {CONNECTIVITY_TOLERANCE} of {target:g}",
            )
        case DiskGraphConfig():
            return "radius", f"is connected at radius {settings.radius:g}"
        case DelaunayGraphConfig():
            return "name", "is connected"
        case RandomRegularGraphConfig():
            return "degree", f"is connected at degree {settings.degree}"
        case _:
            return "p", f"is connected at p {settings.p:g}"


def disk(settings: DiskGraphConfig, points: NDArray[np.float64]) -> nx.Graph:
    """Return the graph that links points at most a radius apart; `points` has shape (nodes, 2).

    The radius is the configured one, or the smallest one that gives the configured connectivity.
    """
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    radius = settings.radius
    if settings.connectivity is not None:
        radius = radius_for_connectivity(settings.connectivity, distance)
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


def radius_for_connectivity(connectivity: float, distance: NDArray[np.float64]) -> float:
    """Return the smallest radius that gives this algebraic connectivity minus the tolerance.

    Bisection is valid because the connectivity never falls when links are added. If no radius is large
    enough, return the largest distance.
    """
    # The graph changes only at distances between points: no other radii need to be tried.
    radii = np.unique(distance)
    at = bisect.bisect_left(
        radii,
        connectivity - CONNECTIVITY_TOLERANCE,
        # The links of points to themselves cancel out in the Laplacian.
        key=lambda radius: algebraic_connectivity(1.0 * (distance <= radius)),
    )
    return float(radii[min(at, radii.size - 1)])


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
    graph.add_edges_from(
        zip(np.repeat(graph.nodes, np.diff(starts)).tolist(), neighbors.tolist(), strict=True)
    )
    return graph
