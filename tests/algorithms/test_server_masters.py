"""Relays between workers and server, workers of several processes, pauses, and what must hold in all of them."""

import numpy as np
import pytest
from convex import BATCH
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import on_ranks
from server_programs import paused, trained

from nnlo_lib.algorithms.relay import server_of

STEPS = 50
CLOSE = {"rtol": 0, "atol": 1e-9}
SYNCHRONOUS = {
    "downpour": ("downpour", {"synchronous": True, "sync_every": 3}),
    "easgd": ("easgd", {"synchronous": True, "sync_every": 4}),
}
ASYNCHRONOUS = {
    "downpour": ("downpour", {"sync_every": 2}),
    "easgd": ("easgd", {"sync_every": 3}),
    "gem": ("gem", {"sync_every": 2}),
}
EVERYWHERE = pytest.mark.parametrize(
    ("transport", "masters", "workers"), [("simulated", 4, 7), ("mpi", 3, 3)]
)


def uneven(workers):
    return [[BATCH] * (STEPS - 5 - worker) + [0] * worker + [1] for worker in range(workers)]


@pytest.mark.parametrize("masters", [1, 2, 3, 5])
def test_every_relay_serves_its_share(masters):
    for workers in range(masters - 1 or 1, 20):
        clients = [server_of(rank, masters + workers, masters) for rank in range(masters, masters + workers)]
        assert clients == sorted(clients)
        shares = [clients.count(relay) for relay in (range(1, masters) if masters > 1 else [0])]
        assert max(shares) - min(shares) <= 1
        assert all(server_of(relay, masters + workers, masters) == 0 for relay in range(1, masters))


@EVERYWHERE
@pytest.mark.parametrize(("name", "options"), SYNCHRONOUS.values(), ids=SYNCHRONOUS)
def test_relays_change_nothing_when_synchronous(name, options, transport, masters, workers):
    counts = uneven(workers)
    flat = on_ranks(trained, "simulated", 1 + workers, name, options, counts)
    tree = on_ranks(trained, transport, masters + workers, name, {**options, "masters": masters}, counts)
    for alone, relayed in zip(flat[1:], tree[masters:], strict=True):
        np.testing.assert_allclose(relayed["path"], alone["path"], **CLOSE)
        np.testing.assert_allclose(relayed["own"], alone["own"], **CLOSE)
        assert relayed["staleness"] == alone["staleness"]
    assert (tree[0]["updates"], tree[0]["pushes"]) == (flat[0]["updates"], flat[0]["pushes"])
    for result in tree:
        np.testing.assert_allclose(result["published"], flat[0]["published"], **CLOSE)
        assert result["published"] == tree[0]["published"]
        assert result["telemetry"][0]["invariant"] < 1e-14


@EVERYWHERE
@pytest.mark.parametrize(("name", "options"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_relays_pass_every_push_on_once(name, options, transport, masters, workers):
    counts = [[BATCH] * (STEPS - 5 * worker) for worker in range(workers)]
    results = on_ranks(trained, transport, masters + workers, name, {**options, "masters": masters}, counts)
    pushes = [-(-len(steps) // options["sync_every"]) for steps in counts]
    counted = [sum(number for _, number in result["staleness"]) for result in results]
    assert counted == [0] * masters + pushes
    assert results[0]["pushes"] == sum(pushes)
    assert results[0]["updates"] <= sum(pushes)
    for result in results:
        assert result["telemetry"][0]["invariant"] < 1e-14
        assert result["published"] == results[0]["published"]


GROUPED = {
    "allreduce": ("allreduce", {}, 0),
    "average": ("average", {"sync_every": 3}, 0),
    "diloco": ("diloco", {"sync_every": 3}, 0),
    "downpour": ("downpour", {"synchronous": True}, 1),
    "downpour, relays": ("downpour", {"synchronous": True, "sync_every": 3, "masters": 3}, 3),
    "easgd": ("easgd", {"synchronous": True, "sync_every": 4}, 1),
    "easgd, relays": ("easgd", {"synchronous": True, "sync_every": 4, "masters": 3}, 3),
}


@pytest.mark.parametrize(("name", "options", "servers"), GROUPED.values(), ids=GROUPED)
@pytest.mark.parametrize(("transport", "group"), [("simulated", 2), ("simulated", 3), ("mpi", 2)])
def test_a_group_is_a_worker_with_its_processes_samples(transport, group, name, options, servers):
    workers, epochs = 2, 2
    counts = uneven(workers * group)
    joint = on_ranks(trained, "simulated", servers + workers, name, options, counts, 1, epochs, group)
    grouped = on_ranks(trained, transport, servers + workers * group, name, options, counts, group, epochs)
    for rank, result in enumerate(grouped):
        alone = joint[rank if rank < servers else servers + (rank - servers) // group]
        for what in ("path", "own", "centre", "published"):
            np.testing.assert_allclose(result[what], alone[what], **CLOSE)
        assert result["telemetry"] == grouped[0]["telemetry"]
        assert all(one.get("invariant", 0) < 1e-14 for one in result["telemetry"])
        leads = rank < servers or (rank - servers) % group == 0
        assert result["staleness"] == (alone["staleness"] if leads else [])


@pytest.mark.parametrize(("name", "options"), SYNCHRONOUS.values(), ids=SYNCHRONOUS)
@pytest.mark.parametrize(("masters", "group"), [(1, 1), (3, 1), (1, 2), (3, 2)])
def test_a_pause_changes_nothing(name, options, masters, group):
    workers, options = 4, {**options, "masters": masters}
    arguments = ("simulated", masters + workers, name, options, workers, STEPS)
    plain, stopped = on_ranks(paused, *arguments, [], group), on_ranks(paused, *arguments, [7, 20, 21], group)
    assert plain[0]["parts"] == 1
    assert stopped[0]["parts"] > 2
    for one, other in zip(plain, stopped, strict=True):
        assert one["path"] == other["path"]
        assert one["theta"] == other["theta"]


lengths = st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    lengths,
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["downpour", "easgd", "gem"]),
)
def test_whatever_the_batches_nothing_hangs_and_nothing_is_lost(counts, masters, sync_every, together, name):
    options = {"sync_every": sync_every, "masters": masters}
    if name != "gem":
        options["synchronous"] = together
    results = on_ranks(trained, "simulated", masters + len(counts), name, options, counts, 1, 2)
    assert results[0]["pushes"] == sum(number for result in results for _, number in result["staleness"])
    for result in results:
        assert all(one["invariant"] < 1e-13 for one in result["telemetry"])
        assert result["published"] == results[0]["published"] == results[0]["centre"]
