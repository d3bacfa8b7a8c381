"""Random graphs, drawn until connected."""

import bisect
from typing import assert_never

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config.topology import (
    DelaunayGraphConfig,
    DiskGraphConfig,
    ErdosRenyiGraphConfig,
    RandomGraphConfig,
    RandomRegularGraphConfig,
    WattsStrogatzGraphConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed

RandomGraph = (
    ErdosRenyiGraphConfig
    | RandomGraphConfig
    | WattsStrogatzGraphConfig
    | RandomRegularGraphConfig
    | DiskGraphConfig
    | DelaunayGraphConfig
)
CONNECTIVITY_TOLERANCE = 0.01  # absolute, of the algebraic connectivity


def random_graph(settings: RandomGraph, nodes: int, seed: int, round: int) -> nx.Graph:
    """Return the first acceptable (see `is_acceptable`) graph drawn from the stream of (seed, round).

    Args:
        settings: settings of the graph.
        nodes: number of nodes.
        seed: seed of the graph.
        round: own round of the graph in which it is drawn.

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


def draw(settings: RandomGraph, nodes: int, generator: np.random.Generator) -> nx.Graph:
    """Return one random graph, connected or not.

    Args:
        settings: settings of the graph.
        nodes: number of nodes.
        generator: source of the draws; it advances.
    """
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
