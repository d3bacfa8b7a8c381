"""Distance of the replicas from their mean, and check of the algorithm's invariant."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.core.errors import InvariantError
from nnlo_lib.train.replica.replica import Replica

# Relative: rounding in float32 stays below this over 100,000 steps; an error in an algorithm exceeds it.
INVARIANT_TOLERANCE = 1e-3


def check_invariant_and_consensus(algorithm: Algorithm, replica: Replica, where: str) -> dict[str, float]:
    """Return the algorithm's telemetry and, if replicas differ, their consensus errors; all ranks call it.

    Args:
        algorithm: this rank's instance of the algorithm.
        replica: replica of this rank, loaded with the model to evaluate.
        where: place in the run, for the error message.

    Raises:
        InvariantError: on all ranks, if the algorithm's invariant does not hold.
    """
    measured = algorithm.telemetry(replica)
    error = measured.get("invariant", 0.0)
    # Not `>`, which is False for NaN.
    if not error <= INVARIANT_TOLERANCE:
        raise InvariantError(
            f"{type(algorithm).__name__}: the invariant is violated in {where} (relative error {error:.2g}); the "
            "docstring of the class in nnlo_lib/algorithms defines the invariant. The cause is an error in nnlo, or "
            "faulty memory or network of a node"
        )
    return measured | (consensus_errors(algorithm.comm, replica.theta) if algorithm.replicas_differ else {})


def consensus_errors(comm: Communicator, theta: Tensor) -> dict[str, float]:
    """Return the mean L2 distance of the ranks' parameters to their mean, also after scaling to norm 1."""
    errors = {
        "consensus_error": _to_mean(comm, theta),
        "consensus_error_normalised": _to_mean(comm, theta / theta.norm()),
    }
    totals = torch.tensor(list(errors.values()), dtype=torch.float64)
    comm.allreduce(totals, "telemetry")
    return dict(zip(errors, (totals / comm.size).tolist(), strict=True))


def _to_mean(comm: Communicator, vector: Tensor) -> float:
    mean = vector.clone()
    comm.allreduce(mean, "telemetry")
    return float((vector - mean.div_(comm.size)).norm())


def summarize_nodes(nodes: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean, the smallest and the largest value over nodes of each metric."""
    table: dict[str, float] = {}
    for name in nodes[0]:
        values = [node[name] for node in nodes]
        table |= {f"val_{name}": sum(values) / len(values)}
        table |= {f"val_{name}_min": min(values), f"val_{name}_max": max(values)}
    return table
