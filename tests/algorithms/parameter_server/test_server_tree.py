"""Relays between workers and server, workers of several processes, pauses, and the invariants in all these cases."""

import functools

import numpy as np
import pytest
from helpers.least_squares import BATCH
from helpers.parameter_server_programs import paused, several, trained
from helpers.run_on_ranks import on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.algorithms.parameter_server.request_queue import server_of

STEPS = 50
CLOSE = {"rtol": 0, "atol": 1e-9}
SYNCHRONOUS = {
    "downpour, together": ("downpour", {"synchronous": True, "sync_every": 3}),
    "easgd, together": ("easgd", {"synchronous": True, "sync_every": 4}),
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


def shorter(workers):
    return [[BATCH] * (STEPS - 5 * worker) for worker in range(workers)]


@functools.cache
def every_tree(transport, masters, workers):
    calls = [
        [name, {**options, "masters": masters}, uneven(workers)] for name, options in SYNCHRONOUS.values()
    ]
    calls += [
        [name, {**options, "masters": masters}, shorter(workers)] for name, options in ASYNCHRONOUS.values()
    ]
    everyones = on_ranks(several, transport, masters + workers, calls)
    return dict(zip([*SYNCHRONOUS, *ASYNCHRONOUS], zip(*everyones, strict=True), strict=True))


@pytest.mark.parametrize("masters", [1, 2, 3, 5])
def test_every_relay_serves_its_share(masters):
    for workers in range(masters - 1 or 1, 20):
        clients = [server_of(rank, masters + workers, masters) for rank in range(masters, masters + workers)]
        assert clients == sorted(clients)
        shares = [clients.count(relay) for relay in (range(1, masters) if masters > 1 else [0])]
        assert max(shares) - min(shares) <= 1
        assert all(server_of(relay, masters + workers, masters) == 0 for relay in range(1, masters))


@EVERYWHERE
@pytest.mark.parametrize("case", SYNCHRONOUS)
def test_relays_change_nothing_when_synchronous(case, transport, masters, workers):
    flat = on_ranks(trained, "simulated", 1 + workers, *SYNCHRONOUS[case], uneven(workers))
    tree = every_tree(transport, masters, workers)[case]
    assert [result["path"] for result in tree] == [
        result["path"] for result in every_tree("simulated", masters, workers)[case]
    ], "the same bits on every transport"
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
@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_relays_pass_every_push_on_once(case, transport, masters, workers):
    results, sync_every = every_tree(transport, masters, workers)[case], ASYNCHRONOUS[case][1]["sync_every"]
    pushes = [-(-len(steps) // sync_every) for steps in shorter(workers)]
    counted = [sum(number for _, number in result["staleness"]) for result in results]
    assert counted == [0] * masters + pushes
    assert results[0]["pushes"] == sum(pushes)
    assert results[0]["updates"] <= sum(pushes)
    if transport == "simulated":
        assert results[0]["updates"] < sum(pushes), "relays add up what arrives together"
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


@functools.cache
def every_group(transport, servers, group):
    calls = [
        [name, options, uneven(2 * group), group, 2]
        for name, options, some in GROUPED.values()
        if some == servers
    ]
    everyones = on_ranks(several, transport, servers + 2 * group, calls)
    cases = [case for case, (_, _, some) in GROUPED.items() if some == servers]
    return dict(zip(cases, zip(*everyones, strict=True), strict=True))


@pytest.mark.parametrize("case", GROUPED)
@pytest.mark.parametrize(("transport", "group"), [("simulated", 2), ("simulated", 3), ("mpi", 2)])
def test_a_group_is_a_worker_with_its_processes_samples(transport, group, case):
    name, options, servers = GROUPED[case]
    joint = on_ranks(trained, "simulated", servers + 2, name, options, uneven(2 * group), 1, 2, group)
    grouped = every_group(transport, servers, group)[case]
    for rank, result in enumerate(grouped):
        alone = joint[rank if rank < servers else servers + (rank - servers) // group]
        for what in ("path", "own", "centre", "published"):
            np.testing.assert_allclose(result[what], alone[what], **CLOSE)
        assert result["telemetry"] == grouped[0]["telemetry"]
        assert all(one.get("invariant", 0) < 1e-14 for one in result["telemetry"])
        leads = rank < servers or (rank - servers) % group == 0
        assert result["staleness"] == (alone["staleness"] if leads else [])


PLACES = pytest.mark.parametrize(("masters", "group"), [(1, 1), (3, 1), (1, 2), (3, 2)])


@PLACES
@pytest.mark.parametrize("case", SYNCHRONOUS)
def test_a_pause_changes_nothing(case, masters, group):
    (name, options), workers = SYNCHRONOUS[case], 4
    arguments = ("simulated", masters + workers, name, {**options, "masters": masters}, workers, STEPS)
    plain, stopped = on_ranks(paused, *arguments, [], group), on_ranks(paused, *arguments, [7, 20, 21], group)
    assert plain[0]["parts"] == 1
    assert stopped[0]["parts"] > 2
    for one, other in zip(plain, stopped, strict=True):
        assert one["path"] == other["path"]
        assert one["theta"] == other["theta"]
        assert other["telemetry"]["invariant"] < 1e-14


@PLACES
@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_a_pause_loses_nothing(case, masters, group):
    (name, options), workers = ASYNCHRONOUS[case], 4
    arguments = (name, {**options, "masters": masters}, workers, STEPS, [7, 20, 21], group)
    results = on_ranks(paused, "simulated", masters + workers, *arguments)
    assert results[0]["parts"] > 2
    assert all(len(result["path"]) == STEPS for result in results[masters:])
    assert all(result["telemetry"]["invariant"] < 1e-14 for result in results)


lengths = st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=6)


@pytest.mark.long
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
