"""Gossip algorithms compared with numpy versions of the papers and with replays of recorded events; invariants."""

import numpy as np
import pytest
from helpers.gossip_cases import (
    ASYNCHRONOUS,
    MIXING,
    PUSHES,
    STEPS,
    SYNCHRONOUS,
    UNEQUAL,
    outcomes,
    unequal,
    uneven,
)
from helpers.gossip_oracles import hops, targets
from helpers.gossip_programs import grouped, make, mixed, recorded
from helpers.gossip_replay import ANSWER, PUSH, Gossiper, Pairer, replay
from helpers.least_squares import DIMENSION, START, Momentum, gradient_of
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config.parallel import SimulationConfig
from nnlo_lib.core.errors import UserError

RING = {"name": "cycle"}
EVERYWHERE = pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)
VECTOR, PACKET = 8 * DIMENSION, 8 * (DIMENSION + 1)  # sizes in bytes


@pytest.mark.long
@EVERYWHERE
def test_synchronous_gosgd(transport, ranks):
    counts = uneven(ranks)
    results = outcomes(transport, ranks)["gosgd"]
    x, a, rules = [START] * ranks, [1.0] * ranks, [Momentum() for _ in range(ranks)]
    pushes = [0] * ranks
    for step in range(STEPS):
        for rank in range(ranks):
            x[rank] = rules[rank].step(x[rank], gradient_of(x[rank], rank, step, counts[rank][step]))
        drawn = targets(ranks, step, PUSHES["probability"])
        for source in drawn:
            a[source], pushes[source] = a[source] / 2, pushes[source] + 1
        posted = [(target, a[source], x[source]) for source, target in drawn.items()]
        for rank in range(ranks):
            merged = [(a[rank], x[rank]), *((b, y) for target, b, y in posted if target == rank)]
            a[rank] = sum(b for b, _ in merged)
            x[rank] = sum(b * y for b, y in merged) / a[rank]
        for result, theta in zip(results, x, strict=True):
            np.testing.assert_allclose(result["path"][step], theta, rtol=0, atol=1e-9)
    assert [result["weight"] for result in results] == a
    for rank, result in enumerate(results):
        assert result["bytes"] == PACKET * pushes[rank] + VECTOR * (ranks - 1) * (rank == 0)
        assert result["telemetry"] == {"invariant": 0.0, "mass_min": min(a), "mass_max": max(a)}
        np.testing.assert_allclose(result["published"], np.average(x, axis=0, weights=a), rtol=0, atol=1e-9)
        assert result["published"] == results[0]["published"]
    assert 0 < min(pushes) <= max(pushes) < STEPS


@EVERYWHERE
@pytest.mark.parametrize("key", [key for key in SYNCHRONOUS if key.startswith("sgp")])
def test_stochastic_gradient_push(transport, ranks, key):
    counts, name = uneven(ranks), SYNCHRONOUS[key][1]["name"]
    results = outcomes(transport, ranks)[key]
    x, w = np.tile(START, (ranks, 1)), np.ones(ranks)
    rules, receivers = [Momentum() for _ in range(ranks)], np.zeros(ranks, int)
    for step in range(STEPS):
        z = x / w[:, None]
        for i in range(ranks):
            x[i] = rules[i].step(x[i], gradient_of(z[i], i, step, counts[i][step]))
        p = hops(ranks, name, step)
        x, w, receivers = p @ x, p @ w, receivers + np.count_nonzero(p, axis=0) - 1
        for i, result in enumerate(results):
            np.testing.assert_allclose(result["path"][step], x[i] / w[i], rtol=0, atol=1e-9)
    assert (np.ptp(w) > 0.1) == (name == "directed_edges" and ranks == 4)
    for i, result in enumerate(results):
        assert result["weight"] == pytest.approx(w[i], abs=1e-12)
        assert result["bytes"] == PACKET * receivers[i] + VECTOR * (ranks - 1) * (i == 0)
        assert result["telemetry"]["invariant"] < 1e-14
        np.testing.assert_allclose(result["published"], x.mean(axis=0), rtol=0, atol=1e-9)


@EVERYWHERE
@pytest.mark.parametrize("key", SYNCHRONOUS)
def test_the_same_bits_on_all_transports_and_after_a_pause(transport, ranks, key):
    through = outcomes("simulated", ranks)[key]
    for again in (outcomes(transport, ranks)[key], outcomes(transport, ranks)[f"{key}, paused"]):
        for one, other in zip(through, again, strict=True):
            assert one["path"] == other["path"]
            assert (one["weight"], one["bytes"]) == (other["weight"], other["bytes"])
            assert one["published"] == other["published"]


@pytest.mark.parametrize(("name", "options"), [*ASYNCHRONOUS.values(), ("adpsgd", RING)])
def test_asynchronous_gossip_equals_a_replay_of_its_events(name, options):
    results = on_ranks(recorded, "simulated", 4, name, options, STEPS)
    events = [result["events"] for result in results]
    for result, me in zip(results, replay(Gossiper if name == "gosgd" else Pairer, events), strict=True):
        np.testing.assert_allclose(result["theta"], me.x, rtol=0, atol=1e-9)
        if isinstance(me, Gossiper):
            assert result["weight"] == me.a
    assert sum(event[0] == "receive" and event[-1] >= PUSH for mine in events for event in mine) > 30
    assert results == on_ranks(recorded, "simulated", 4, name, options, STEPS)


def test_staleness_is_counted():
    results = on_ranks(recorded, "simulated", 4, "adpsgd", RING, STEPS)
    for rank, result in enumerate(results):
        answers = sum(event[0] == "receive" and event[-1] == ANSWER for event in result["events"])
        staleness = result["counts"]["staleness"]
        assert sum(staleness.values()) == answers
        assert (answers > 5) == (rank % 2 == 0), "node 0's side asks"
    assert set(results[0]["counts"]["staleness"]) >= {"1", "2"}, "the fast ones go on learning"


@EVERYWHERE
@pytest.mark.parametrize("key", ASYNCHRONOUS)
def test_unequal_numbers_of_batches(transport, ranks, key):
    """A rank that finished its batches still answers the others; only pushes and pairs send bytes."""
    steps, results = unequal(ranks), outcomes(transport, ranks)[f"{key}, unequal"]
    assert [result["steps"] for result in results] == steps
    assert all(result["telemetry"]["invariant"] < 1e-12 for result in results)
    assert all(result["published"] == results[0]["published"] for result in results)
    bytes_sent = sum(result["bytes"] + result["answers"] for result in results) - VECTOR * (ranks - 1)
    if key == "gosgd":
        pushes = sum(r in targets(ranks, step, 0.4) for r in range(ranks) for step in range(steps[r]))
        assert bytes_sent == PACKET * pushes
        weighted = sum(result["weight"] * np.array(result["theta"]) for result in results) / ranks
        np.testing.assert_allclose(results[0]["published"], weighted, rtol=0, atol=1e-9)
    else:
        pairs = sum(sum(result["counts"]["staleness"].values()) for result in results)
        assert pairs > 0
        assert bytes_sent == 2 * VECTOR * pairs
        mean = np.mean([result["theta"] for result in results], axis=0)
        np.testing.assert_allclose(results[0]["published"], mean, rtol=0, atol=1e-9)


@EVERYWHERE
@pytest.mark.parametrize("key", ASYNCHRONOUS)
def test_a_wish_stops_all_in_the_middle_and_they_go_on(transport, ranks, key):
    results = outcomes(transport, ranks)[f"{key}, stopped"]
    assert results[1]["stopped"] == 5
    if transport == "simulated":
        assert all(0 < result["stopped"] < 15 for result in results)
    assert [result["steps"] for result in results] == [40] * ranks
    assert all(result["telemetry"]["invariant"] < 1e-12 for result in results)


@pytest.mark.parametrize("transport", ["simulated", "mpi"])
@pytest.mark.parametrize("size", [2, 4])
def test_adpsgd_averages_workers_of_several_processes(transport, size):
    """The processes of a worker stay equal; pairs of workers, of which only the leaders send, keep the sum."""
    results = on_ranks(grouped, transport, 4, {"name": "path"}, size, 30)
    leaders = results[::size]
    for rank, result in enumerate(results):
        assert result["theta"] == leaders[rank // size]["theta"]
        assert result["telemetry"]["invariant"] < 1e-12
        mean = np.mean([leader["theta"] for leader in leaders], axis=0)
        np.testing.assert_allclose(result["published"], mean, rtol=0, atol=1e-9)
    averages = sum(result["averages"] for result in results)
    assert (averages > 0) == (size == 2), "a single worker has no neighbor"


@EVERYWHERE
@pytest.mark.parametrize("key", MIXING)
def test_mixing_keeps_the_mean_and_reaches_it(transport, ranks, key):
    results = outcomes(transport, ranks)[f"{key}, mixed"]
    assert_kept(results, 1e-12)
    assert_kept(outcomes(transport, ranks)[f"{key}, large"], 1e-12)
    if transport == "simulated" or key in ("sgp", "gosgd, synchronous"):
        for result in results:
            np.testing.assert_allclose(result["theta"], (ranks + 1) / 2 * START, atol=1e-9)


@pytest.mark.long
def test_rounding_takes_no_weight():
    """The total weight stays exact although a third of a weight is sent in float32 a thousand times.

    The sender keeps the rounding error of the sent weight.
    """
    graph = {"name": "directed_edges", "edges": UNEQUAL[4]}
    results = on_ranks(mixed, "simulated", 4, "sgp", graph, [[1] * 1000] * 4, "float32")
    assert results[0]["telemetry"]["invariant"] < 1e-13


def assert_kept(results, error):
    """Assert that the total weight and the weighted sum of the parameters are unchanged.

    Rank i starts with the parameters (i + 1) START.
    """
    ranks = len(results)
    assert sum(result["weight"] for result in results) == pytest.approx(ranks, rel=1e-14)
    total = sum(result["weight"] * np.array(result["theta"]) for result in results)
    np.testing.assert_allclose(total, START * ranks * (ranks + 1) / 2, rtol=error, atol=error)
    assert all(result["telemetry"]["invariant"] < error for result in results)


SCHEDULES = st.integers(1, 5).flatmap(
    lambda ranks: st.lists(st.lists(st.integers(0, 30), max_size=25), min_size=ranks, max_size=ranks)
)


@settings(max_examples=60, deadline=None)
@given(
    SCHEDULES,
    st.floats(0.05, 1),
    st.sampled_from([0.0, 1e-5, 1e-3]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["gosgd", "complete_bipartite", "path"]),
)
@pytest.mark.long
def test_whatever_the_schedule_nothing_is_lost(durations, probability, latency, dtype, how):
    name, options = ("gosgd", {"probability": probability}) if how == "gosgd" else ("adpsgd", {"name": how})
    machine = SimulationConfig(latency=latency)
    results = SimulatedWorld(len(durations), machine).run(
        lambda comm: mixed(comm, name, options, durations, dtype)
    )
    assert [result["steps"] for result in results] == list(map(len, durations))
    assert_kept(results, 1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("graph", [{"name": "complete"}, {"name": "exponential"}, RING | {"drop": 0.1}])
def test_adpsgd_refuses_what_is_not_bipartite(graph):
    with pytest.raises(UserError, match="bipartite"):
        SimulatedWorld(3).run(lambda comm: make(comm, "adpsgd", graph))
