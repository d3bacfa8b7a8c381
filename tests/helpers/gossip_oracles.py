"""Reference implementations of gossip in numpy: targets of pushes and mixing matrices."""

import numpy as np

from helpers.gossip_cases import (
    UNEQUAL,
)
from helpers.gossip_programs import SEED
from nnlo_lib.core.rng import derive_seed


def targets(ranks, step, probability):
    """Return the target rank of each push in a step, by sender."""
    drawn = {}
    for rank in range(ranks):
        if derive_seed(SEED, "gosgd push", rank, step) / 2**63 < probability:
            others = [other for other in range(ranks) if other != rank]
            drawn[rank] = others[derive_seed(SEED, "gosgd target", rank, step) % (ranks - 1)]
    return drawn


def hops(ranks, names, step):
    """Return the column-stochastic mixing matrix of a step; p[i, j] is the weight that rank i receives from rank j."""
    p = np.eye(ranks)
    exponents = range(int(np.log2(ranks)))
    for j in range(ranks):
        match names:
            case "exponential":
                p[[(j + 2**k) % ranks for k in exponents], j] = 1
            case "one_peer_exponential":
                p[(j + 2 ** (step % len(exponents))) % ranks, j] = 1
            case "directed_edges":
                p[[to for sender, to in UNEQUAL[ranks] if sender == j], j] = 1
    return p / p.sum(axis=0)
