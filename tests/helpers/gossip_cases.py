"""Cases of the gossip programs; all cases of a transport run in one launch."""

import functools

from helpers.gossip_programs import several
from helpers.least_squares import BATCH
from helpers.run_on_ranks import on_ranks

STEPS = 50
PUSHES = {"probability": 0.4, "synchronous": True}
UNEQUAL = {  # strongly connected graphs; the graph of four nodes has unequal out-degrees
    2: [[0, 1], [1, 0]],
    4: [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]],
}
SYNCHRONOUS = {
    "gosgd": ("gosgd", PUSHES),
    "sgp, exponential": ("sgp", {"name": "exponential"}),
    "sgp, one peer": ("sgp", {"name": "one_peer_exponential"}),
    "sgp, unequal": ("sgp", {"name": "directed_edges"}),
}
ASYNCHRONOUS = {
    "gosgd": ("gosgd", {"probability": 0.4}),
    "adpsgd, path": ("adpsgd", {"name": "path"}),
    "adpsgd, star": ("adpsgd", {"name": "star"}),
}
MIXING = {
    "gosgd": ("gosgd", {"probability": 0.5}),
    "gosgd, synchronous": ("gosgd", {"probability": 0.5, "synchronous": True}),
    "sgp": ("sgp", {"name": "directed_edges"}),
    "adpsgd": ("adpsgd", {"name": "hypercube"}),
}
LARGE = 3_000  # copies of the parameters: exceeds one packet of every transport


def calls(ranks):
    """Yield the key, program and arguments of every case for a number of ranks."""
    graph = {"edges": UNEQUAL[ranks]}
    for key, (name, options) in SYNCHRONOUS.items():
        options = options | (graph if "directed" in options.get("name", "") else {})
        yield key, ["synchronous", name, options, uneven(ranks), []]
        yield f"{key}, paused", ["synchronous", name, options, uneven(ranks), [7, 30]]
    for key, (name, options) in ASYNCHRONOUS.items():
        yield f"{key}, unequal", ["asynchronous", name, options, unequal(ranks)]
        yield f"{key}, stopped", ["asynchronous", name, options, [40] * ranks, 1]
    for key, (name, options) in MIXING.items():
        options = options | (graph if name == "sgp" else {})
        yield f"{key}, mixed", ["mixed", name, options, [[1] * 200] * ranks]
        yield f"{key}, large", ["mixed", name, options, [[1] * 20] * ranks, "float64", LARGE]


@functools.cache
def outcomes(transport, ranks):
    """Return the results of all ranks, by key of the case."""
    keys, programs = zip(*calls(ranks), strict=True)
    results = on_ranks(several, transport, ranks, programs)
    return dict(zip(keys, zip(*results, strict=True), strict=True))


def uneven(ranks):
    """Return batch sizes: full batches on every rank, except a last step with samples on rank 0 only."""
    return [[BATCH] * (STEPS - 1) + [2 if rank == 0 else 0] for rank in range(ranks)]


def unequal(ranks):
    """Return each rank's number of steps; higher ranks take many more steps."""
    return [5 + 10 * rank for rank in range(ranks)]
