"""All-reduce in buckets during the backward pass is bit-identical to a single message after the backward pass."""

import functools

import pytest
from helpers.bucketed_allreduce_programs import PARAMETERS, STEPS, WIDTH, sent_early, trained
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks

LAYER = WIDTH * WIDTH + WIDTH
SIZES = [0, 1000, 4 * LAYER, 4 * LAYER + 4, 100_000, 10**9]  # bucket sizes in bytes


@functools.cache
def paths(transport, ranks):
    return on_ranks(trained, transport, ranks, SIZES)


@pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_size_gives_the_same_bits(transport, ranks, dtype):
    results = [result[dtype] for result in paths(transport, ranks)]
    whole = results[0]["0"]
    assert len(whole) == STEPS
    assert all(path == whole for result in results for path in result.values())


@pytest.mark.mpi
@pytest.mark.processes
@pytest.mark.parametrize("ranks", [2, 4])
def test_bits_are_those_of_mpi(ranks):
    assert paths("simulated", ranks) == paths("mpi", ranks)


def test_what_is_final_leaves_early():
    """During the backward pass a rank sends the bucket of the last layer and those below it, up to an unused one.

    A rank without samples sends no bucket early.
    """
    results = on_ranks(sent_early, "simulated", 2, 4 * LAYER)
    early = [[step[0] for step in result] for result in results]
    assert early[0] == [3 * LAYER, LAYER, LAYER, 3 * LAYER, LAYER, LAYER]
    assert early[1] == [3 * LAYER, 0, 3 * LAYER, 3 * LAYER, LAYER, 0]
    for first, second in zip(*results, strict=True):
        assert first[1:] == second[1:] == [PARAMETERS, *[LAYER] * 4]
