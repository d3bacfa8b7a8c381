"""Check the graph of a run against the requirements of its algorithm."""

from collections.abc import Callable

import numpy as np

from nnlo_lib.config import Run
from nnlo_lib.config.algorithm_base import GraphProperty
from nnlo_lib.core.errors import UserError
from nnlo_lib.topology.redraw_check import redraw_error
from nnlo_lib.topology.topology import Topology, build_topology

GRAPH_PROPERTIES: dict[GraphProperty, Callable[[Topology], bool]] = {
    "connected": lambda graph: graph.connected,
    "symmetric": lambda graph: graph.symmetric,
    "doubly stochastic": lambda graph: graph.doubly_stochastic,
    "static": lambda graph: graph.static,
    "bipartite": lambda graph: graph.bipartite,
    "eigenvalues above -1/3": lambda graph: bool(np.linalg.eigvalsh(graph.at(0).matrix)[0] > -1 / 3 + 1e-9),
}
ADVICE: dict[GraphProperty, str] = {
    "connected": "word of a node would never reach some others; add links",
    "symmetric": "its links must carry both ways with equal weights; use an undirected graph",
    "doubly stochastic": "else some nodes weigh more than others; use weights: metropolis",
    "static": "what it keeps belongs to the links of earlier rounds; take one graph, without drop and redraw_every",
    "bipartite": "active nodes ask passive ones only; use complete_bipartite, path, star, grid, hypercube, or a "
    "cycle of an even number of nodes",
    "eigenvalues above -1/3": "use weights: lazy_metropolis",
}


def _rounds(run: Run) -> int | None:
    """Return the number of rounds of a run; None if it depends on the data."""
    if run.train.steps_per_epoch is None:
        return None
    return run.train.epochs * run.train.steps_per_epoch // run.algorithm.steps_per_round


def topology_error(run: Run, seed: int) -> str | None:
    """Return why the run's topology does not suit its algorithm, or None."""
    row, workers = run.algorithm.capabilities, run.parallel.ranks
    if not row.graph_properties:
        return None
    try:
        graph = build_topology(run.topology, workers, seed)
    except UserError as error:
        return str(error)
    if fault := redraw_error(run.topology, workers, seed, _rounds(run)):
        return fault
    stays = run.compression.name != "none" and row.compresses_changes
    wanted: tuple[GraphProperty, ...] = (*row.graph_properties, "static") if stays else row.graph_properties
    lacking = next((need for need in wanted if not GRAPH_PROPERTIES[need](graph)), None)
    if lacking is None:
        return None
    return f"{run.algorithm.name} needs a graph that is {lacking}, {run.topology.name} of {workers} nodes is not: {ADVICE[lacking]}"
