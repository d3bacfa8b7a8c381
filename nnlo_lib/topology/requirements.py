"""Check the graph of a run against the requirements of its algorithm."""

from collections.abc import Callable

import numpy as np

from nnlo_lib.config import Run
from nnlo_lib.config.algorithm_base import GraphProperty
from nnlo_lib.core.errors import UserError
from nnlo_lib.topology.topology import Topology, build_topology

GRAPH_PROPERTIES: dict[GraphProperty, Callable[[Topology], bool]] = {
    "connected": lambda graph: graph.connected,
    "symmetric": lambda graph: graph.symmetric,
    "doubly stochastic": lambda graph: graph.doubly_stochastic,
    "static": lambda graph: graph.static,
    "bipartite": lambda graph: graph.bipartite,
    # The margin is for rounding errors: an eigenvalue of exactly -1/3 must not pass.
    "eigenvalues above -1/3": lambda graph: bool(np.linalg.eigvalsh(graph.at(0).matrix)[0] > -1 / 3 + 1e-9),
}
ADVICE: dict[GraphProperty, str] = {
    "connected": "a connected graph, so that every node reaches all others; add links",
    "symmetric": "a symmetric mixing matrix; use an undirected graph",
    "doubly stochastic": "a doubly stochastic mixing matrix, so that all nodes have equal weight; set "
    "topology.weights: metropolis",
    "static": "a static graph, because nodes keep roles or state of their links from round to round; use a single graph without "
    "drop and redraw_every",
    "bipartite": "a bipartite graph, because active nodes send requests to passive nodes only; use "
    "complete_bipartite, path, star, grid, hypercube, or cycle with an even number of nodes",
    "eigenvalues above -1/3": "a mixing matrix with eigenvalues above -1/3; set topology.weights: lazy_metropolis",
}


def topology_error(run: Run, seed: int) -> str | None:
    """Return why the run's topology does not suit its algorithm, or None."""
    row, workers = run.algorithm.capabilities, run.workers
    if not row.graph_properties:
        return None
    try:
        graph = build_topology(run.topology, workers, seed)
    except UserError as error:
        return str(error)
    # With compressed changes, nodes keep public copies of the neighbors that they had in round 0.
    stays = run.compression.name != "none" and row.compresses_changes
    wanted: tuple[GraphProperty, ...] = (*row.graph_properties, "static") if stays else row.graph_properties
    lacking = next((need for need in wanted if not GRAPH_PROPERTIES[need](graph)), None)
    if lacking is None:
        return None
    return (
        f"{run.topology.name} with {workers} nodes does not suit {run.algorithm.name}, "
        f"which needs {ADVICE[lacking]}"
    )
