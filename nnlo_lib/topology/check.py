"""Hold the graph of a run against what its algorithm needs."""

from collections.abc import Callable

import numpy as np

from nnlo_lib.config import NEXT, DiNNO, Run
from nnlo_lib.config.validity import Graph, needs
from nnlo_lib.errors import UserError
from nnlo_lib.topology.redraws import redraw_fault
from nnlo_lib.topology.topology import Topology, topology

HOLDS: dict[Graph, Callable[[Topology], bool]] = {
    "connected": lambda graph: graph.connected,
    "symmetric": lambda graph: graph.symmetric,
    "doubly stochastic": lambda graph: graph.doubly_stochastic,
    "static": lambda graph: graph.static,
    "bipartite": lambda graph: graph.bipartite,
    "eigenvalues above -1/3": lambda graph: bool(np.linalg.eigvalsh(graph.at(0).matrix)[0] > -1 / 3 + 1e-9),
}
ADVICE: dict[Graph, str] = {
    "connected": "word of a node would never reach some others; add links",
    "symmetric": "its links must carry both ways with equal weights; use an undirected graph",
    "doubly stochastic": "else some nodes weigh more than others; use weights: metropolis",
    "static": "what it keeps belongs to the links of earlier rounds; take one graph, without drop and redraw_every",
    "bipartite": "active nodes ask passive ones only; use complete_bipartite, path, star, grid, hypercube, or a "
    "cycle of an even number of nodes",
    "eigenvalues above -1/3": "use weights: lazy_metropolis",
}


def _rounds(run: Run) -> int | None:
    """Return how many rounds the nodes of a run exchange, if that shows without its data."""
    if run.train.steps_per_epoch is None:
        return None
    match run.algorithm:
        case DiNNO(primal_iterations=steps) | NEXT(inner_steps=steps):
            pass
        case _:
            steps = 1
    return run.train.epochs * run.train.steps_per_epoch // steps


def graph_fault(run: Run, seed: int) -> str | None:
    """Return why the run's topology cannot serve its algorithm, or nothing."""
    row, workers = needs(run.algorithm), run.parallel.ranks
    if not row.graph:
        return None
    try:
        graph = topology(run.topology, workers, seed)
    except UserError as error:
        return str(error)
    if fault := redraw_fault(run.topology, workers, seed, _rounds(run)):
        return fault
    stays = run.compression.name != "none" and row.remembers
    wanted: tuple[Graph, ...] = (*row.graph, "static") if stays else row.graph
    lacking = next((need for need in wanted if not HOLDS[need](graph)), None)
    if lacking is None:
        return None
    return f"{run.algorithm.name} needs a graph that is {lacking}, {run.topology.name} of {workers} nodes is not: {ADVICE[lacking]}"
