"""Compressed exchanges against a few lines of numpy that follow the papers, to 1e-9 over 50 steps."""

import functools

import numpy as np
import pytest
from compressors import BYTES, SETTINGS, Sender
from convex import BATCH, DIMENSION, START, Momentum, gradient, rows
from neighbour_programs import each_case, interrupted, neighbours
from ranks import IDS, TRANSPORTS, on_ranks
from server_programs import paused, recorded, several

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
    """Basu et al. 2019, Qsparse-local-SGD, algorithm 1."""
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
    whole = on_ranks(neighbours, "simulated", 4, AVERAGE, CYCLE, "sgd", 12, SETTINGS[kind])
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
    """Workers make up for what they left out of gradients; the server's parameters come as they are."""
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
    """A root, two relays and two workers: what is lost on the way up is sent later, by whom it was lost."""
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


@pytest.mark.parametrize(("masters", "group"), [(1, 1), (3, 1), (1, 2), (3, 2)])
@KINDS
def test_a_checkpoint_of_downpour_holds_the_errors(kind, masters, group):
    options = {"synchronous": True, "sync_every": 3, "masters": masters, "compression": SETTINGS[kind]}
    arguments = ("simulated", masters + 4, "downpour", options, 4, STEPS)
    plain, stopped = on_ranks(paused, *arguments, [8, 20, 23], group), on_ranks(paused, *arguments, [], group)
    for one, another in zip(plain, stopped, strict=True):
        assert one["theta"] == another["theta"]
