"""Algorithms with compression compared with numpy versions of the papers, to 1e-9 over 50 steps."""

import functools

import numpy as np
import pytest
from helpers.decentralized_programs import each_case, interrupted, neighbors
from helpers.energy_matching import EnergyMatching
from helpers.gossip_cases import UNEQUAL
from helpers.gossip_oracles import hops, targets
from helpers.gossip_programs import recorded as happened
from helpers.gossip_programs import several as gossip
from helpers.gossip_replay import RoundingPairer, replay
from helpers.least_squares import BATCH, DIMENSION, START, Momentum, gradient, rows
from helpers.parameter_server_programs import paused, recorded, several
from helpers.reference_compressors import BYTES, RULES, SETTINGS, Sender
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks

from nnlo_lib.algorithms.parameter_server.client import FETCH

STEPS, VECTOR, EVERY = 50, 8 * DIMENSION, 5
EVERYWHERE = pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)
KINDS = pytest.mark.parametrize("kind", SETTINGS)
CLOSE = {"rtol": 0, "atol": 1e-9}
CYCLE, AVERAGE = {"name": "cycle"}, {"name": "average", "sync_every": EVERY}


@functools.cache
def averages(transport, ranks):
    cases = [[AVERAGE, CYCLE, "sgd", STEPS, settings] for settings in SETTINGS.values()]
    return dict(zip(SETTINGS, zip(*on_ranks(each_case, transport, ranks, cases), strict=True), strict=True))


@EVERYWHERE
@KINDS
def test_average(transport, ranks, kind):
    """Equals Qsparse-local-SGD (Basu et al. 2019, algorithm 1)."""
    results, together = averages(transport, ranks)[kind], START
    thetas, rules = [START] * ranks, [Momentum() for _ in range(ranks)]
    senders = [Sender(kind, rank) for rank in range(ranks)]
    for step in range(STEPS):
        for i in range(ranks):
            thetas[i] = rules[i].step(thetas[i], gradient(thetas[i], rows(i, step)))
        if (step + 1) % EVERY == 0:
            sent = [sender.send(together - theta) for sender, theta in zip(senders, thetas, strict=True)]
            together = together - np.mean(sent, axis=0)
            thetas = [together] * ranks
        for result, theta in zip(results, thetas, strict=True):
            np.testing.assert_allclose(result["path"][step], theta, **CLOSE)
    assert [result["path"] for result in results] == [
        result["path"] for result in averages("simulated", ranks)[kind]
    ]
    for result in results:
        assert result["bytes"] == STEPS // EVERY * (ranks - 1) * BYTES[kind]
        assert result["telemetry"]["invariant"] == 0


@KINDS
def test_a_checkpoint_of_average_holds_the_errors(kind):
    whole = on_ranks(neighbors, "simulated", 4, AVERAGE, CYCLE, "sgd", 12, SETTINGS[kind])
    parts = on_ranks(interrupted, "simulated", 4, AVERAGE, CYCLE, 12, SETTINGS[kind])
    assert [result["path"] for result in whole] == parts


def full(workers):
    return [[BATCH] * STEPS] * workers


@functools.cache
def downpours(transport, ranks):
    calls = [
        ["downpour", {"synchronous": True, "sync_every": 2, "compression": settings}, full(ranks - 1)]
        for settings in SETTINGS.values()
    ]
    return dict(zip(SETTINGS, zip(*on_ranks(several, transport, ranks, calls), strict=True), strict=True))


@EVERYWHERE
@KINDS
def test_synchronous_downpour(transport, ranks, kind):
    """Workers send the compression error of their gradients later; the server sends uncompressed parameters."""
    results, workers, theta, server = downpours(transport, ranks)[kind], ranks - 1, START, Momentum()
    rules, senders = [Momentum() for _ in range(workers)], [Sender(kind, 1 + i) for i in range(workers)]
    for step in range(0, STEPS, 2):
        sent = []
        for i in range(workers):
            first = gradient(theta, rows(i, step)) / workers
            local = rules[i].step(theta, first * workers)
            second = gradient(local, rows(i, step + 1)) / workers
            rules[i].step(local, second * workers)
            sent.append(senders[i].send(first + second))
        theta = server.step(theta, sum(sent))
        for result in results[1:]:
            np.testing.assert_allclose(result["path"][step + 1], theta, **CLOSE)
    simulated = downpours("simulated", ranks)[kind]
    assert [result["path"] for result in results] == [result["path"] for result in simulated]
    for result in results[1:]:
        assert result["sent"] == {"gradient": STEPS // 2 * BYTES[kind]}
        assert result["telemetry"][0]["invariant"] == 0
    assert results[0]["sent"] == {"parameters": STEPS // 2 * workers * VECTOR}


@KINDS
def test_asynchronous_downpour_equals_a_replay_of_its_events(kind):
    steps, workers = 20, 3
    server, *results = on_ranks(
        recorded, "simulated", workers + 1, "downpour", {"compression": SETTINGS[kind]}, steps
    )
    theta, rule, known, done = START, Momentum(), [START] * workers, [0] * workers
    senders = [Sender(kind, 1 + i) for i in range(workers)]
    for rank, _, answered in server["events"]:
        i = rank - 1
        theta = rule.step(theta, senders[i].send(gradient(known[i], rows(i, done[i]))))
        np.testing.assert_allclose(answered, theta, **CLOSE)
        known[i], done[i] = theta, done[i] + 1
        np.testing.assert_allclose(results[i]["path"][done[i] - 1], theta, **CLOSE)
    assert done == [steps] * workers


@KINDS
def test_relays_make_up_for_what_they_leave_out(kind):
    """With a root, two relays and two workers, each sender keeps its compression error and sends it later."""
    options = {"synchronous": True, "masters": 3, "compression": SETTINGS[kind]}
    root, *relays, one, other = on_ranks(several, "simulated", 5, [["downpour", options, full(2)]])
    theta, rule, senders = START, Momentum(), [Sender(kind, rank) for rank in range(5)]
    for step in range(STEPS):
        pushed = [senders[3 + i].send(gradient(theta, rows(i, step)) / 2) for i in range(2)]
        theta = rule.step(theta, sum(senders[1 + i].send(pushed[i]) for i in range(2)))
        for worker in (one, other):
            np.testing.assert_allclose(worker[0]["path"][step], theta, **CLOSE)
    for sender in (*relays, one, other):
        assert sender[0]["sent"]["gradient"] == STEPS * BYTES[kind]
    assert root[0]["pushes"] == 2 * STEPS


@pytest.mark.long
@pytest.mark.parametrize(("masters", "group"), [(1, 1), (3, 1), (1, 2), (3, 2)])
@KINDS
def test_a_checkpoint_of_downpour_holds_the_errors(kind, masters, group):
    options = {"synchronous": True, "sync_every": 3, "masters": masters, "compression": SETTINGS[kind]}
    arguments = ("simulated", masters + 4, "downpour", options, 4, STEPS)
    plain, stopped = on_ranks(paused, *arguments, [8, 20, 23], group), on_ranks(paused, *arguments, [], group)
    for one, another in zip(plain, stopped, strict=True):
        assert one["theta"] == another["theta"]


CASTS = pytest.mark.parametrize("kind", ["fp16", "bf16"])


@functools.cache
def elastics(transport, ranks):
    options = {"synchronous": True, "sync_every": 3, "alpha": 0.2}
    calls = [
        ["easgd", {**options, "compression": SETTINGS[kind]}, full(ranks - 1)] for kind in ("fp16", "bf16")
    ]
    results = on_ranks(several, transport, ranks, calls)
    return dict(zip(("fp16", "bf16"), zip(*results, strict=True), strict=True))


@EVERYWHERE
@CASTS
def test_synchronous_easgd(transport, ranks, kind):
    """The center moves by the rounded parameters that workers send; workers send the rounding errors later."""
    (server, *results), workers = elastics(transport, ranks)[kind], range(ranks - 1)
    x, c, rules = [START for _ in workers], START, [Momentum() for _ in workers]
    senders = [Sender(kind, 1 + i) for i in workers]
    for step in range(STEPS):
        g = [gradient(x[i], rows(i, step)) for i in workers]
        if step % 3 == 0:
            told = [senders[i].send(x[i]) for i in workers]
            x, c = [x[i] - 0.2 * (x[i] - c) for i in workers], c + 0.2 * sum(t - c for t in told)
        x = [rules[i].step(x[i], g[i]) for i in workers]
        for result, theta in zip(results, x, strict=True):
            np.testing.assert_allclose(result["path"][step], theta, **CLOSE)
    np.testing.assert_allclose(server["centre"], c, **CLOSE)
    assert [result["path"] for result in results] == [
        result["path"] for result in elastics("simulated", ranks)[kind][1:]
    ]
    for result in results:
        assert result["sent"] == {"parameters": -(-STEPS // 3) * BYTES[kind]}
        assert result["telemetry"][0]["invariant"] < 1e-14


@pytest.mark.parametrize("kind", [kind for kind in SETTINGS if kind != "powersgd"])
def test_gem_equals_a_replay_of_its_events(kind):
    """PowerSGD is excluded: if GEM scales an update to zero, rounding determines the direction that is sent."""
    workers, settings = 3, {"kappa": 3.0, "momentum": 0.9, "compression": SETTINGS[kind]}
    server, *results = on_ranks(recorded, "simulated", workers + 1, "gem", settings, STEPS, 1)
    replicas, c = [EnergyMatching(i, kappa=3.0) for i in range(workers)], START
    senders, under_way = [Sender(kind, 1 + i) for i in range(workers)], {}
    for rank, asked, answered in server["events"]:
        i = rank - 1
        if asked == FETCH:
            np.testing.assert_allclose(answered, c, **CLOSE)
            update = replicas[i].scaled(replicas[i].compute([BATCH] * STEPS), c)
            replicas[i].move(c, update)
            under_way[i] = senders[i].send(update)
        else:
            c = c + under_way.pop(i)
    np.testing.assert_allclose(server["theta"], c, **CLOSE)
    for result, replica in zip(results, replicas, strict=True):
        np.testing.assert_allclose(result["path"], replica.path, **CLOSE)


CENTRED = {
    "easgd": ({"sync_every": 3}, ["fp16", "bf16"]),
    "gem": ({"sync_every": 2}, list(SETTINGS)),
}


@pytest.mark.long
@pytest.mark.parametrize("masters", [1, 3])
@pytest.mark.parametrize("name", CENTRED)
def test_the_books_of_a_centre_hold_what_is_still_to_be_sent(name, masters):
    """The invariant of the center holds over epochs, with relays and after pauses, including unsent errors."""
    options, kinds = CENTRED[name]
    for kind in kinds:
        wanted = {**options, "masters": masters, "compression": SETTINGS[kind]}
        epochs = on_ranks(several, "simulated", masters + 4, [[name, wanted, full(4), 1, 3]])
        stops = on_ranks(paused, "simulated", masters + 4, name, wanted, 4, STEPS, [7, 20, 21])
        assert stops[0]["parts"] > 2
        for told in (*epochs[0][0]["telemetry"], stops[0]["telemetry"]):
            assert told["invariant"] < 1e-13
        sent = [
            result[0]["sent"]["parameters" if name == "easgd" else "gradient"] for result in epochs[masters:]
        ]
        pushes = [sum(number for _, number in result[0]["staleness"]) for result in epochs[masters:]]
        assert sent == [number * BYTES[kind] for number in pushes]


PACKET = {kind: 8 + BYTES[kind] for kind in ("fp16", "bf16")}


@functools.cache
def gossips(transport, ranks):
    keys, calls = [], []
    for kind in PACKET:
        pushing = {"probability": 0.4, "synchronous": True, "compression": SETTINGS[kind]}
        graph = {"name": "directed_edges", "edges": UNEQUAL[ranks], "compression": SETTINGS[kind]}
        for name, options in (("gosgd", pushing), ("sgp", graph)):
            for pauses in ([], [7, 30]):
                keys.append((name, kind, bool(pauses)))
                calls.append(["synchronous", name, options, full(ranks), pauses])
    return dict(zip(keys, zip(*on_ranks(gossip, transport, ranks, calls), strict=True), strict=True))


@EVERYWHERE
@CASTS
def test_gosgd_keeps_what_rounding_takes(transport, ranks, kind):
    results, c = gossips(transport, ranks)["gosgd", kind, False], RULES[kind]
    x, a, rules = [START] * ranks, [1.0] * ranks, [Momentum() for _ in range(ranks)]
    pushes = [0] * ranks
    for step in range(STEPS):
        x = [rules[i].step(x[i], gradient(x[i], rows(i, step))) for i in range(ranks)]
        before, posted = np.dot(a, x), []
        for source, target in targets(ranks, step, 0.4).items():
            a[source], pushes[source] = a[source] / 2, pushes[source] + 1
            posted.append((target, a[source], c(x[source])))
            x[source] = 2 * x[source] - c(x[source])
        for i in range(ranks):
            merged = [(a[i], x[i]), *((b, y) for target, b, y in posted if target == i)]
            a[i] = sum(b for b, _ in merged)
            x[i] = sum(b * y for b, y in merged) / a[i]
        np.testing.assert_allclose(np.dot(a, x), before, rtol=0, atol=1e-12)
        for result, theta in zip(results, x, strict=True):
            np.testing.assert_allclose(result["path"][step], theta, **CLOSE)
    for rank, result in enumerate(results):
        assert result["bytes"] == PACKET[kind] * pushes[rank] + VECTOR * (ranks - 1) * (rank == 0)
        assert result["telemetry"]["invariant"] == 0


@EVERYWHERE
@CASTS
def test_sgp_keeps_what_rounding_takes(transport, ranks, kind):
    results, c = gossips(transport, ranks)["sgp", kind, False], RULES[kind]
    x, w, rules = np.tile(START, (ranks, 1)), np.ones(ranks), [Momentum() for _ in range(ranks)]
    p = hops(ranks, "directed_edges", 0)
    for step in range(STEPS):
        z = x / w[:, None]
        x = np.array([rules[i].step(x[i], gradient(z[i], rows(i, step))) for i in range(ranks)])
        sent = c(x)
        mixed = p @ sent + (x - sent)
        np.testing.assert_allclose(mixed.sum(axis=0), x.sum(axis=0), rtol=0, atol=1e-12)
        x, w = mixed, p @ w
        for i, result in enumerate(results):
            np.testing.assert_allclose(result["path"][step], x[i] / w[i], **CLOSE)
    receivers = np.count_nonzero(p, axis=0) - 1
    for i, result in enumerate(results):
        assert result["bytes"] == PACKET[kind] * STEPS * receivers[i] + VECTOR * (ranks - 1) * (i == 0)
        assert result["telemetry"]["invariant"] < 1e-14


@EVERYWHERE
@CASTS
@pytest.mark.parametrize("name", ["gosgd", "sgp"])
def test_gossip_has_the_same_bits_on_all_transports_and_after_a_pause(transport, ranks, kind, name):
    through = gossips("simulated", ranks)[name, kind, False]
    for paused_too in (False, True):
        again = gossips(transport, ranks)[name, kind, paused_too]
        assert [result["path"] for result in again] == [result["path"] for result in through]


@CASTS
def test_adpsgd_moves_pairs_by_what_both_read(kind):
    """In the replay the active and the passive node move by half of the difference of the rounded vectors."""
    options = {"name": "cycle", "compression": SETTINGS[kind]}
    results = on_ranks(happened, "simulated", 4, "adpsgd", options, STEPS)
    nodes = replay(RoundingPairer.of(kind), [result["events"] for result in results])
    for result, me in zip(results, nodes, strict=True):
        np.testing.assert_allclose(result["theta"], me.x, **CLOSE)
        assert result["telemetry"]["invariant"] < 1e-14
    pairs = sum(sum(result["counts"]["staleness"].values()) for result in results)
    sent = sum(result["bytes"] + result["answers"] for result in results) - 3 * VECTOR
    assert sent == 2 * BYTES[kind] * pairs
