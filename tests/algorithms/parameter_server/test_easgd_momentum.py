"""EASGD with momentum compared with numpy versions of algorithm 2 (EAMSGD) of the paper, to 1e-9 over 50 steps."""

import functools

import numpy as np
import pytest
from helpers.least_squares import BATCH, DIMENSION, START, gradient_of
from helpers.parameter_server_programs import paused, recorded, several
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks

STEPS, ETA, DELTA, ALPHA, TAU = 50, 0.05, 0.8, 0.2, 3
EVERYWHERE = pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)
CLOSE = {"rtol": 0, "atol": 1e-9}
SETTINGS = {"sync_every": TAU, "alpha": ALPHA, "momentum": DELTA}


class Worker:
    """A worker of Zhang, Choromanska and LeCun 2015, algorithm 2."""

    def __init__(self, number):
        self.number, self.x, self.v, self.t, self.path = number, START, np.zeros(DIMENSION), 0, []

    def step(self, c, count=BATCH):
        """Take a step; return the center after the exchange, if one is due."""
        x = self.x
        g = gradient_of(x + DELTA * self.v, self.number, self.t, count)
        if count and self.t % TAU == 0:
            self.x, c = x - ALPHA * (x - c), c + ALPHA * (x - c)
        if count:
            self.v = DELTA * self.v - ETA * g
            self.x = self.x + self.v
        self.t += 1
        self.path.append(self.x)
        return c


def counts(workers):
    """Return full batches for every worker, and a last step with samples for the first worker only."""
    return [[BATCH] * STEPS + [2 if worker == 0 else 0] for worker in range(workers)]


def synchronous(workers):
    """Return the workers and c: all exchange with the c before the step (equations (5) and (6))."""
    everyone, c = [Worker(number) for number in range(workers)], START
    for t in range(STEPS + 1):
        c = c + sum(each.step(c, counts(workers)[each.number][t]) - c for each in everyone)
    return everyone, c


@functools.cache
def trained(transport, ranks):
    calls = [
        ["eamsgd", SETTINGS | {"synchronous": is_waited}, counts(ranks - 1)] for is_waited in (True, False)
    ]
    return list(zip(*on_ranks(several, transport, ranks, calls), strict=True))


@EVERYWHERE
def test_synchronous_workers_follow_algorithm_2(transport, ranks):
    everyone, c = synchronous(ranks - 1)
    server, *results = trained(transport, ranks)[0]
    assert [each["path"] for each in (server, *results)] == [
        each["path"] for each in trained("simulated", ranks)[0]
    ], "the same bits on every transport"
    for worker, result in zip(everyone, results, strict=True):
        np.testing.assert_allclose(result["path"], worker.path, **CLOSE)
        np.testing.assert_allclose(result["own"], worker.x, **CLOSE)
        np.testing.assert_allclose(result["centre"], c, **CLOSE)
        assert result["telemetry"][0]["invariant"] < 1e-14


@pytest.mark.parametrize("transport", ["simulated", "mpi"])
def test_one_asynchronous_worker_follows_algorithm_2(transport):
    worker, c = Worker(0), START
    for count in counts(1)[0]:
        c = worker.step(c, count)
    server, result = trained(transport, 2)[1]
    np.testing.assert_allclose(result["path"], worker.path, **CLOSE)
    np.testing.assert_allclose(server["centre"], c, **CLOSE)


def test_asynchronous_workers_equal_a_replay_of_their_events():
    server, *results = on_ranks(recorded, "simulated", 4, "eamsgd", SETTINGS, 30)
    everyone, c = [Worker(number) for number in range(3)], START
    for rank, _, answered in server["events"]:
        np.testing.assert_allclose(answered, c, **CLOSE)
        c = everyone[rank - 1].step(c)
        for _ in range(TAU - 1):
            everyone[rank - 1].step(c)
    np.testing.assert_allclose(server["theta"], c, **CLOSE)
    for worker, result in zip(everyone, results, strict=True):
        np.testing.assert_allclose(result["path"], worker.path, **CLOSE)
    order = [rank for rank, _, _ in server["events"]]
    assert order != sorted(order), "workers of unequal speed take turns"


def test_stops_change_no_bit():
    settings = SETTINGS | {"synchronous": True}
    whole, parts = (
        on_ranks(paused, "simulated", 4, "eamsgd", settings, 3, 20, stops) for stops in ([], [5, 13])
    )
    assert [rank["parts"] for rank in parts] == [3, 3, 3, 3]
    assert [rank["path"] for rank in parts] == [rank["path"] for rank in whole]
    assert [rank["theta"] for rank in parts] == [rank["theta"] for rank in whole]
