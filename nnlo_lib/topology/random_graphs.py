"""Random graphs, drawn until connected."""

import bisect
from typing import assert_never

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config.topology import (
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
)
CONNECTIVITY_TOLERANCE = 0.01  # of the algebraic connectivity


def random_graph(settings: RandomGraph, nodes: int, seed: int, round: int) -> nx.Graph:
    """Return the first connected graph drawn from the stream of (seed, round).

    Raises UserError where `gen_attempts` draws give none, or where no draw ever could.
    """
    return draw_connected(settings, nodes, seed, round)[0]


def draw_connected(settings: RandomGraph, nodes: int, seed: int, round: int) -> tuple[nx.Graph, int]:
    """Return that graph, and after how many draws it came."""
    refuse_impossible(settings, nodes)
    generator = np.random.default_rng(derive_seed(seed, "topology", round))
    for attempt in range(1, settings.gen_attempts + 1):
        graph = draw(settings, nodes, generator)
        if is_acceptable(graph, settings):
            return graph, attempt
    raise UserError(draw_failure_message(settings, nodes, round))


def draw(settings: RandomGraph, nodes: int, generator: np.random.Generator) -> nx.Graph:
    """Return one random graph, connected or not."""
    match settings:
        case ErdosRenyiGraphConfig() | RandomGraphConfig():
            return nx.fast_gnp_random_graph(nodes, settings.p, seed=generator)
        case WattsStrogatzGraphConfig():
            return nx.watts_strogatz_graph(nodes, settings.k, settings.p, seed=generator)
        case RandomRegularGraphConfig():
            return nx.random_regular_graph(settings.degree, nodes, seed=generator)
        case DiskGraphConfig():
            return disk(settings, generator.random((nodes, 2)))
        case _:
            assert_never(settings)


def is_acceptable(graph: nx.Graph, settings: RandomGraph) -> bool:
    """Tell whether a drawn graph is connected, and as well as asked for."""
    if isinstance(settings, DiskGraphConfig) and settings.connectivity is not None:
        return (
            abs(algebraic_connectivity(nx.to_numpy_array(graph)) - settings.connectivity)
            <= CONNECTIVITY_TOLERANCE
        )
    return bool(nx.is_connected(graph))


def disk(settings: DiskGraphConfig, points: NDArray[np.float64]) -> nx.Graph:
    """Link points, of shape (nodes, 2), within the radius or the smallest radius that gives the connectivity."""
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    radius = settings.radius
    if settings.connectivity is not None:
        radius = radius_for_connectivity(settings.connectivity, distance)
    return nx.from_numpy_array(np.triu(distance <= radius, 1))


def radius_for_connectivity(connectivity: float, distance: NDArray[np.float64]) -> float:
    """Return the smallest radius with that algebraic connectivity, by bisection: it never falls as links come."""
    radii = np.unique(distance)
    at = bisect.bisect_left(
        radii,
        connectivity - CONNECTIVITY_TOLERANCE,
        key=lambda radius: algebraic_connectivity(1.0 * (distance <= radius)),
    )
    return float(radii[min(at, radii.size - 1)])


def algebraic_connectivity(links: NDArray[np.float64]) -> float:
    """Return the second smallest eigenvalue of the Laplacian of an adjacency matrix (Fiedler 1973)."""
    return float(np.linalg.eigvalsh(np.diag(links.sum(axis=1)) - links)[1])


def refuse_impossible(settings: RandomGraph, nodes: int) -> None:
    """Refuse what no draw can give."""
    match settings:
        case WattsStrogatzGraphConfig(k=k) if k >= nodes:
            raise UserError(f"topology.k: {k} neighbours need more than {nodes} nodes; take a smaller k")
        case RandomRegularGraphConfig(degree=degree) if degree >= nodes:
            raise UserError(f"topology.degree: {degree} neighbours need more than {nodes} nodes; take fewer")
        case RandomRegularGraphConfig(degree=degree) if degree * nodes % 2:
            raise UserError(
                f"topology.degree: no graph of {nodes} nodes has degree {degree}, the product must be even; "
                f"take {degree - 1} or {degree + 1}"
            )
        case DiskGraphConfig(connectivity=float(target)) if (
            nodes < 2 or target > nodes + CONNECTIVITY_TOLERANCE
        ):
            raise UserError(
                f"topology.connectivity: {target:g} is out of reach, {nodes} nodes have at most {nodes}, "
                "all linked with all; take less"
            )


def draw_failure_message(settings: RandomGraph, nodes: int, round: int) -> str:
    """Say what was searched in vain and which key to change."""
    key, searched = draw_target(settings)
    drawn = f" drawn for its round {round}" if round else ""
    return (
        f"topology.{key}: none of {settings.gen_attempts} graphs of {nodes} nodes{drawn} has {searched}; "
        f"change {key} or raise topology.gen_attempts"
    )


def draw_target(settings: RandomGraph) -> tuple[str, str]:
    """Return which key says what graph is wanted, and that in words."""
    match settings:
        case DiskGraphConfig(connectivity=float(target)):
            return "connectivity", f"an algebraic connectivity within {CONNECTIVITY_TOLERANCE} of {target:g}"
        case DiskGraphConfig():
            return "radius", f"all nodes connected at radius {settings.radius:g}"
        case RandomRegularGraphConfig():
            return "degree", f"all nodes connected at degree {settings.degree}"
        case _:
            return "p", f"all nodes connected at p {settings.p:g}"
